package example.snowflake;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The JSON of the protocol: written, and read strictly.
 *
 * <p>Read is one object whose values are texts, integers of 63 bits with a sign, true, false, null,
 * and what is skipped: objects, arrays and other numbers, nested up to {@value #DEPTH} deep.  That is all
 * that the answers of a registry to a program need; keys that are not known may have any value.
 */
final class Json {
    private static final int DEPTH = 16;

    /** What a value is that is skipped: of no use to us, and of no trouble. */
    private static final Object OTHER = new Object();

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** The keys and values of an object; throws IllegalArgumentException if it is not one. */
    static Map<String, Object> read(String text) {
        Json json = new Json(text);
        Map<String, Object> object = json.readObject(0);

        json.skipBlanks();
        if (json.at < text.length()) {
            throw json.wrong("nothing more");
        }
        return object;
    }

    /** A text with its quotes. */
    static String quote(String value) {
        StringBuilder quoted = new StringBuilder("\"");

        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);

            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }

    private IllegalArgumentException wrong(String wanted) {
        return new IllegalArgumentException("at character " + at + " " + wanted + " should be");
    }

    private void skipBlanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    /** The next character that is no blank; it is not taken. */
    private char peek() {
        skipBlanks();
        if (at >= text.length()) {
            throw wrong("more");
        }
        return text.charAt(at);
    }

    private void take(char c) {
        if (peek() != c) {
            throw wrong(String.valueOf(c));
        }
        at++;
    }

    private boolean takeIf(char c) {
        if (peek() != c) {
            return false;
        }
        at++;
        return true;
    }

    private Map<String, Object> readObject(int depth) {
        Map<String, Object> object = new LinkedHashMap<>();

        if (depth > DEPTH) {
            throw wrong("nothing so deep");
        }
        take('{');
        if (takeIf('}')) {
            return object;
        }
        do {
            peek();
            String key = readText();

            take(':');
            if (object.containsKey(key)) {
                throw wrong("another key");
            }
            object.put(key, readValue(depth));
        } while (takeIf(','));
        take('}');
        return object;
    }

    private void skipArray(int depth) {
        if (depth > DEPTH) {
            throw wrong("nothing so deep");
        }
        take('[');
        if (takeIf(']')) {
            return;
        }
        do {
            readValue(depth);
        } while (takeIf(','));
        take(']');
    }

    private Object readValue(int depth) {
        switch (peek()) {
            case '"':
                return readText();
            case '{':
                readObject(depth + 1);
                return OTHER;
            case '[':
                skipArray(depth + 1);
                return OTHER;
            case 't':
                return readWord("true", Boolean.TRUE);
            case 'f':
                return readWord("false", Boolean.FALSE);
            case 'n':
                return readWord("null", null);
            default:
                return readNumber();
        }
    }

    private Object readWord(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong("a value");
        }
        at += word.length();
        return value;
    }

    private Object readNumber() {
        int from = at;

        while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String number = text.substring(from, at);

        if (!number.matches("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) {
            at = from;
            throw wrong("a value");
        }
        try {
            return number.matches("-?[0-9]+") ? (Object) Long.valueOf(number) : OTHER;
        } catch (NumberFormatException tooLarge) {
            return OTHER;
        }
    }

    private String readText() {
        StringBuilder value = new StringBuilder();

        take('"');
        for (;;) {
            if (at >= text.length() || text.charAt(at) < ' ') {
                throw wrong("the end of a text");
            }
            char c = text.charAt(at++);

            if (c == '"') {
                return value.toString();
            }
            value.append(c == '\\' ? readEscaped() : c);
        }
    }

    private char readEscaped() {
        if (at >= text.length()) {
            throw wrong("more");
        }
        char c = text.charAt(at++);
        int simple = "\"\\/bfnrt".indexOf(c);

        if (simple >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(simple);
        }
        if (c != 'u' || at + 4 > text.length() || !text.substring(at, at + 4).matches("[0-9a-fA-F]{4}")) {
            throw wrong("an escape");
        }
        at += 4;
        return (char) Integer.parseInt(text.substring(at - 4, at), 16);
    }
}
