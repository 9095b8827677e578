// check_id_pool.java
//	  Checks the class of doc/clients/java.md.
import java.sql.*;
import java.util.*;
import java.util.concurrent.*;
import org.postgresql.ds.PGSimpleDataSource;

public class CheckIdPool {
    private static final int MOST = 8192;
    private static final int THREADS = 4;

    /** Whoever connects fills the pool, one at a time. */
    private static class Source extends PGSimpleDataSource {
        private final Semaphore one = new Semaphore(1);

        @Override
        public Connection getConnection() throws SQLException {
            check(one.tryAcquire(), "two threads ask the server at once");
            try {
                return super.getConnection();
            } finally {
                one.release();
            }
        }
    }

    private static Source source = new Source();
    private static IdPool pool;
    private static PreparedStatement nextval;

    private static void check(boolean right, String otherwise) {
        if (!right)
            throw new AssertionError(otherwise);
    }

    private static long newest() throws SQLException {
        try (ResultSet row = nextval.executeQuery()) {
            row.next();
            return row.getLong(1);
        }
    }

    private static void checkIncrease(List<Long> ids) {
        for (int i = 1; i < ids.size(); i++)
            check(ids.get(i - 1) < ids.get(i), "ids do not increase");
    }

    /** Empties the pool until it gets n ids at once; returns the ids. */
    private static List<Long> grow(int n) throws SQLException {
        List<Long> ids = new ArrayList<>();
        while (pool.size() < n) {
            ids.add(pool.next());
            check(ids.size() < 100_000, "n is " + pool.size() + " after so many ids");
        }
        return ids;
    }

    /** Takes ids until the pool was filled again; the first of these is taken. */
    private static void nextPool() throws SQLException {
        long now = newest();
        while (pool.next() < now)
            ;
    }

    private static List<Long> checkGrowth() throws SQLException {
        List<Long> ids = grow(MOST);
        for (int i = 0; i < 3 * MOST; i++) {
            ids.add(pool.next());
            check(pool.size() <= MOST, "n is " + pool.size());
        }
        checkIncrease(ids);
        return ids;
    }

    /** So many ids come from one pool: they are less than one that the server issues next. */
    private static void checkSize() throws SQLException {
        int n = 0, count = 0;
        for (int turn = 0; turn < 100; turn++) {
            nextPool();
            long now = newest();
            n = pool.size();
            for (count = 1; pool.next() < now; count++)
                ;
            if (count == n)
                return;
        }
        check(false, "n is " + n + ", but there were " + count + " ids");
    }

    private static List<Long> take(int count) throws SQLException {
        List<Long> ids = new ArrayList<>();
        for (int i = 0; i < count; i++)
            ids.add(pool.next());
        return ids;
    }

    private static void checkThreads(List<Long> ids) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<List<Long>>> taken = new ArrayList<>();
        for (int i = 0; i < THREADS; i++)
            taken.add(threads.submit(() -> take(20_000)));
        Set<Long> every = new HashSet<>(ids);
        int count = ids.size();
        for (Future<List<Long>> mine : taken) {
            checkIncrease(mine.get());
            every.addAll(mine.get());
            count += mine.get().size();
        }
        threads.shutdown();
        check(every.size() == count, "an id came twice");
    }

    private static void checkAge() throws Exception {
        grow(1000);
        nextPool();
        long now = newest();
        int n = pool.size();
        Thread.sleep(1100);
        check(pool.next() > now, "an id older than a second was used");
        check(pool.size() == n / 2, "n was " + n + " and is " + pool.size());
    }

    public static void main(String[] args) throws Exception {
        source.setURL(System.getenv("JDBC_URL"));
        pool = new IdPool(source);
        try (Connection connection = source.getConnection()) {
            nextval = connection.prepareStatement("SELECT snowflake_nextval()");
            checkThreads(checkGrowth());
            checkSize();
            checkAge();
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
    }
}
