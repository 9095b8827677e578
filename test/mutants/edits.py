"""
edits.py
      Makes mutants: small changes of one place, of the kinds that people make by mistake.  A relation, a
      constant by one, a word (true, least, NOT), a condition or an operand that is left out or always
      holds, a statement or a grant that is left out, two statements that are swapped.

Of C, SQL with PL/pgSQL, Java, JavaScript, Go and Python, by patterns.  What does not compile, or
cannot be created, is no mutant; mutants.py finds that out.

A mutant is known by its file, its function, and its line or statement before and after, so that it stays
the same when lines move.
"""
import os
import re


class Mutant:
    def __init__(self, path, start, end, new, name):
        self.path, self.start, self.end, self.new, self.name = path, start, end, new, name


class Language:
    """Patterns of a language:

    blank       comments, strings, and what only an error says; with the group that it is
    function    where one begins; group 1 is its name
    words       with what each becomes
    conditions, statements      group 1; and what is there in their place: always, nothing
    relations, joins            operators
    """

    def __init__(self, blank, function, words, conditions, statements, nothing=";", always=("false", "true"),
                 relations=None, joins=("&&", "||")):
        self.blank = [(re.compile(pattern, re.M | re.S), group) for pattern, group in blank]
        self.function = re.compile(function, re.M)
        self.words = [(re.compile(pattern), new) for pattern, new in words]
        self.conditions = [re.compile(pattern, re.M | re.S) for pattern in conditions]
        self.statements = re.compile(statements, re.M)
        self.nothing, self.always = nothing, always
        self.relations = relations or {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
        self.joins = joins
        ordered = "|".join(re.escape(one) for one in sorted(self.relations, key=len, reverse=True))
        # as pgindent and the others write them: blanks around operators of two operands
        self.relation = re.compile(r"(?<=\s)(" + ordered + r")(?=\s)")
        self.join = re.compile(r"(?<=\s)(" + "|".join(re.escape(one) for one in joins) + r")(?=\s)")
        # what comes after an operand
        self.stop = re.compile(r"\s(" + "|".join(re.escape(one) for one in (*joins, "$$", *CLAUSES)) + r")(?!\w)")


COMMENT, LINE, STRING, CHARACTER = r"/\*.*?\*/", r"//[^\n]*", r'"(\\.|[^"\\\n])*"', r"'(\\.|[^'\\\n])+'"
BOOLEAN = [(r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"(?<=[ (!])!(?=[\w(!])", "")]
# an if of C, up to the bracket that ends it
IF = r"\bif \((?=(.))"
# calls and assignments on lines of their own; none that declares a variable or goes away
LEAVES = r"(?!(?:if|for|while|switch|case|default|return|else|do|goto|break|continue|throw|const|let|var|import|final|try)\b)"
CALL = r"(?:\(void\)\s*)?(?:await )?[A-Za-z_][\w.\->]*\([^;{}]*\);"
WRITE = r"[*(]*[A-Za-z_][\w.\->\[\]()+* ]*?(?:[-+*/|&]?=(?!=)|\+\+|--)[^;{}]*;"
STATEMENT = r"^[ \t]+" + LEAVES + r"(" + CALL + "|" + WRITE + r")$"
DECLARES = re.compile(r"(static |const |volatile |final )*[A-Za-z_][\w.<>\[\], ]*\s+\**[A-Za-z_]\w*(\[.*\])?( =|;|,)")
CLAUSES = ("THEN", "LOOP", "GROUP BY", "ORDER BY", "RETURNING", "FOR UPDATE", "UNION", "WHEN", "ELSE", "END")
SILENT = ("Assert(", "snprintf(", "free(", "pfree(")

LANGUAGES = {
    "c": Language(
        [(COMMENT, 0), (STRING, 0), (CHARACTER, 0), (r"^#(?:.*\\\n)*[^\n]*", 0),
         # what an error says; and all of what is only logged
         (r"\bereport\(ERROR,([^;]*)\);", 1), (r"\b(?:ereport\((?!ERROR)|elog\()[^;]*\);", 0)],
        r"^(\w+)\([^;{}]*\)\n\{",
        BOOLEAN + [(r"\bMin\b", "Max"), (r"\bMax\b", "Min")], [IF], STATEMENT),
    "java": Language(
        [(COMMENT, 0), (LINE, 0), (STRING, 0), (CHARACTER, 0), (r"^@[^\n]*", 0)],
        r"^ +(?:(?:public|private|protected|static|final|synchronized) )*[\w<>\[\]., ?]+ (?!if\b|for\b|while\b)(\w+)\([^;{]*\)[^;{]*\{$",
        BOOLEAN + [(r"\bmin(?=\()", "max"), (r"\bmax(?=\()", "min")], [IF], STATEMENT),
    "js": Language(
        [(COMMENT, 0), (LINE, 0), (STRING, 0), (CHARACTER, 0)],
        r"^ *(?:export )?(?:static )?(?:async )?(?:function )?(?:get )?(?!if\b|for\b|while\b|switch\b|catch\b)([#\w]+)\(.*\) \{$",
        BOOLEAN + [(r"\bmin(?=\()", "max"), (r"\bmax(?=\()", "min")], [IF], STATEMENT,
        relations={"<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "==="}),
    "go": Language(
        [(COMMENT, 0), (LINE, 0), (STRING, 0), (CHARACTER, 0), (r"^import.*?^\)", 0)],
        r"^func (?:\([^)]*\) )?(\w+)\(",
        BOOLEAN, [r"\bif (?:[^{;\n]*; )?([^{;\n]*) \{$"],
        r"^\t+" + LEAVES + r"([A-Za-z_][\w.]*\([^{}\n]*\)|[A-Za-z_][\w.\[\]]*(?: [-+*/|&]?= [^{}\n]*|\+\+|--))$", nothing=""),
    "python": Language(
        [(r'("""|\'\'\').*?\1', 0), (r"#[^\n]*", 0), (STRING, 0), (CHARACTER, 0)],
        r"^ *(?:async )?def (\w+)\(",
        [(r"\bTrue\b", "False"), (r"\bFalse\b", "True"), (r"\bnot (?!None|in\b)", ""), (r"\bmin(?=\()", "max"),
         (r"\bmax(?=\()", "min"), (r"\bis None\b", "is not None"), (r"\bis not None\b", "is None")],
        [r"^ *(?:if|elif|while) ([^\n]*):$"],
        r"^ +" + LEAVES + r"((?:await )?[A-Za-z_][\w.]*\([^\n]*\)|[A-Za-z_][\w.\[\]]*(?: [-+*/|&]?= [^\n]*))$",
        nothing="pass", always=("False", "True"), joins=("and", "or")),
    "sql": Language(
        [(COMMENT, 0), (r"--[^\n]*", 0), (r"'(?:''|[^'])*'", 0), (r"\$re\$.*?\$re\$", 0), (r"^COMMENT ON[^;]*;", 0), (r"^SET [^\n]*", 0),
         # what an error says, but not where it stands
         (r"\bRAISE\b([^;]*);", 1)],
        r"^CREATE (?:OR REPLACE )?(?:UNIQUE )?(?:FUNCTION|PROCEDURE|VIEW|TABLE|TYPE|INDEX|TRIGGER|AGGREGATE|OPERATOR) ([\w.]+)",
        [(r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"\bNOT (?!NULL)", ""), (r"\bleast\b", "greatest"),
         (r"\bgreatest\b", "least"), (r"\bmin(?=\()", "max"), (r"\bmax(?=\()", "min"), (r"\bIS NULL\b", "IS NOT NULL"),
         (r"\bIS NOT NULL\b", "IS NULL"), (r"(?<=\s)FOR (?:NO KEY )?UPDATE\b", ""), (r" STRICT\b(?! [a-z])", "")],
        [r"\b(?:IF|ELSIF) (?!NOT EXISTS [a-z]|EXISTS [a-z])((?:(?!\bTHEN\b)[^;])*?)\s+THEN\b",
         r"\bWHEN (?!OTHERS|\w+ THEN)((?:(?!\bTHEN\b)[^;])*?)\s+THEN\b"],
        r"^(?:\t*)((?:PERFORM|UPDATE|DELETE|INSERT|LOCK|EXECUTE|GRANT|REVOKE|v_\w+ :=)\b[^;]*;)", nothing="NULL;",
        relations={"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "="}, joins=("AND", "OR")),
}
SUFFIXES = {".c": "c", ".h": "c", ".java": "java", ".js": "js", ".go": "go", ".py": "python", ".sql": "sql"}

ARITHMETIC = re.compile(r"(?<=[\w)\]])\s([+-])(?=\s[\w(])")
NUMBER = re.compile(r"(?<![\w.\"$])(0x[0-9A-Fa-f_]+|0(?!\d)|[1-9][\d_]*)(?=[nLlu]?\b)(?![\w.]*\.)")
# a call that may do something
ACTIVE = re.compile(r"\b[A-Za-z_]\w*\(")


def language_of(path):
    return SUFFIXES[os.path.splitext(path)[1]]


def masked(text, language):
    """The text with what is blank in this language, so that places stay the same."""
    for pattern, group in language.blank:
        def blank_out(match, group=group):
            whole, (start, end) = match.group(), match.span(group)
            start, end = start - match.start(), end - match.start()
            return whole[:start] + re.sub(r"[^\n]", " ", whole[start:end]) + whole[end:]
        text = pattern.sub(blank_out, text)
    return text


def closing(code, at):
    """Where the bracket ends that is open there."""
    depth = 1
    while depth > 0 and at < len(code):
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(code[at], 0)
        at += 1
    return at - 1


def operand_end(code, at, language):
    """Where an operand ends that begins there."""
    depth = 0
    while at < len(code):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(code[at], 0)
        if depth < 0 or (depth == 0 and (code[at] in ";?:{" or language.stop.match(code, at))):
            return at
        at += 1
    return at


def statements(code, language):
    """From, to, and the blanks before it."""
    for match in language.statements.finditer(code):
        text = match.group(1)
        if not text.startswith(SILENT) and not (language.nothing == ";" and DECLARES.match(text)):
            yield match.start(1), match.end(1), match.group()[:match.start(1) - match.start()]


def independent(one, other):
    """Whether two assignments do the same in the other order."""
    targets = [re.split(r":?=", text)[0].strip(" +-*/|&") for text in (one, other)]
    return (not (ACTIVE.search(one) and ACTIVE.search(other)) and "=" in one and "=" in other and
            not re.search(re.escape(targets[0]) + r"\b", other) and not re.search(re.escape(targets[1]) + r"\b", one))


def edits(code, language):
    """Each change: from, to, new text."""
    for match in language.relation.finditer(code):
        yield match.start(), match.end(), language.relations[match.group()]
    for match in language.join.finditer(code):
        one, other = language.joins
        yield match.start(), match.end(), other if match.group() == one else one
        end = operand_end(code, match.end() + 1, language)
        if end > match.end() + 1:
            yield match.start(), end, ""
    for match in ARITHMETIC.finditer(code):
        yield match.start(1), match.end(1), "-" if match.group(1) == "+" else "+"
    for match in NUMBER.finditer(code):
        yield match.start(), match.end(), str(int(match.group().replace("_", ""), 0) + 1)
    for pattern, new in language.words:
        for match in pattern.finditer(code):
            yield match.start(), match.end(), new
    for pattern in language.conditions:
        for match in pattern.finditer(code):
            end = closing(code, match.start(1)) if pattern.pattern == IF else match.end(1)
            for word in language.always:
                yield match.start(1), end, word
    previous = None
    for one in statements(code, language):
        at_top = one[2] == "" and language.nothing == "NULL;"
        yield one[:2] + ("" if at_top else language.nothing,)
        if previous and previous[2] == one[2] and not at_top and code[previous[1]:one[0]].isspace():
            first, between, second = code[previous[0]:previous[1]], code[previous[1]:one[0]], code[one[0]:one[1]]
            if not independent(first, second):
                yield previous[0], one[1], second + between + first
        previous = one


def line_of(text, start, end):
    """The whole lines of a place."""
    return text.rfind("\n", 0, start) + 1, text.find("\n", end)


def shown(text):
    return re.sub(r"\s+", " ", text).strip()


def mutants_of(path):
    with open(path) as file:
        text = file.read()
    language = LANGUAGES[language_of(path)]
    code = masked(text, language)
    heads = [(match.start(), match.group(1)) for match in language.function.finditer(code)]
    seen = {}
    for start, end, new in edits(code, language):
        before = [name for at, name in heads if at <= start]
        # constants of C are in directives, and what is outside of functions declares
        if not before and language is LANGUAGES["c"]:
            continue
        # the original's text where it is only moved; as many lines as before
        if ("\n" in new or len(new) > 12) and code[start:end] != text[start:end]:
            continue
        if new == code[start:end]:
            continue
        left, right = line_of(text, start, end)
        changed = text[left:start] + new + text[end:right]
        name = f"{path}: {before[-1] if before else '-'}: {shown(text[left:right])} -> {shown(changed)}"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            name += f" ({seen[name]})"
        # a line of an error that is raised, and of an Assert, stays the same
        new += "\n" * (text[start:end].count("\n") - new.count("\n"))
        yield Mutant(path, start, end, new, name)
