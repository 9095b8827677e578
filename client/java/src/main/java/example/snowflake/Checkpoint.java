package example.snowflake;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/**
 * A process that is checkpointed by CRaC and restored, perhaps more than once, must not go on with
 * its lease: every restored process would issue the same ids.  So the lease is sealed and released
 * before the checkpoint, and each restored process makes a new start.
 *
 * <p>CRaC's interface is found by reflection, in the JDK ({@code jdk.crac}) or as the library
 * {@code org.crac}; without either there is nothing to do.
 */
final class Checkpoint {
    private static final String[] PACKAGES = {"jdk.crac", "org.crac"};

    private final Snowflake snowflake;
    /** CRaC has a weak reference to it. */
    private Object resource;

    private Checkpoint(Snowflake snowflake) {
        this.snowflake = snowflake;
    }

    /** Registers a Snowflake, if there is CRaC. */
    static Checkpoint of(Snowflake snowflake) {
        Checkpoint made = new Checkpoint(snowflake);

        for (String crac : PACKAGES) {
            try {
                made.register(crac);
                break;
            } catch (ClassNotFoundException e) {
                // the next one
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(crac + " cannot be told of this Snowflake", e);
            }
        }
        return made;
    }

    private void register(String crac) throws ReflectiveOperationException {
        Class<?> type = Class.forName(crac + ".Resource");
        Object context = Class.forName(crac + ".Core").getMethod("getGlobalContext").invoke(null);

        resource = Proxy.newProxyInstance(type.getClassLoader() == null ? Checkpoint.class.getClassLoader()
                : type.getClassLoader(), new Class<?>[] {type}, handler());
        Class.forName(crac + ".Context").getMethod("register", type).invoke(context, resource);
    }

    private InvocationHandler handler() {
        return (proxy, method, arguments) -> handle(proxy, method, arguments);
    }

    private Object handle(Object proxy, Method method, Object[] arguments) {
        switch (method.getName()) {
            case "beforeCheckpoint":
                snowflake.pause();
                return null;
            case "afterRestore":
                snowflake.resume();
                return null;
            case "equals":
                return proxy == arguments[0];
            case "hashCode":
                return System.identityHashCode(proxy);
            default:
                return "checkpoint of a Snowflake";
        }
    }

    /** From then on it does nothing: the weak reference ends. */
    void forget() {
        resource = null;
    }
}
