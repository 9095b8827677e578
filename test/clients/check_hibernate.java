// check_hibernate.java
//	  Checks the generator of checks.md: rows that Hibernate inserts in a batch have ids
//	  of the program, in order.
import example.snowflake.Snowflake;
import java.sql.*;
import java.util.*;
import org.hibernate.*;
import org.hibernate.cfg.Configuration;

public class CheckHibernate {
    private static final String[] CUSTOMERS = {"Grace", "Ada", "Edith"};

    private static void check(boolean right, String otherwise) {
        if (!right)
            throw new AssertionError(otherwise);
    }

    private static List<PlacedOrder> place() {
        SessionFactory factory = new Configuration().addAnnotatedClass(PlacedOrder.class)
                .setProperty("hibernate.connection.url", System.getenv("JDBC_URL"))
                .setProperty("hibernate.dialect", "org.hibernate.dialect.PostgreSQLDialect")
                .setProperty("hibernate.jdbc.batch_size", "50")
                .buildSessionFactory();
        List<PlacedOrder> orders = new ArrayList<>();

        Session session = factory.openSession();
        session.beginTransaction();
        for (String customer : CUSTOMERS) {
            PlacedOrder order = new PlacedOrder();
            order.customer = customer;
            session.save(order);
            orders.add(order);
        }
        session.getTransaction().commit();
        factory.close();
        return orders;
    }

    public static void main(String[] args) throws SQLException {
        String registry = System.getenv("REGISTRY_URL");
        try (Snowflake ids = Snowflake.builder(() -> DriverManager.getConnection(registry))
                .name("shop").build();
                Connection shop = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            ProgramGenerator.ids = ids;
            long number = ids.next() >> 12 & 1023; // of the layout twitter
            long last = 0;

            for (PlacedOrder order : place()) {
                check(order.id > last, "id " + order.id + " comes after " + last);
                check((order.id >> 12 & 1023) == number, "id " + order.id + " is not of node number " + number);
                last = order.id;
                PreparedStatement select = shop.prepareStatement("SELECT customer FROM orders WHERE id = ?");
                select.setLong(1, order.id);
                ResultSet row = select.executeQuery();
                check(row.next(), "there is no row with id " + order.id);
                check(row.getString(1).equals(order.customer), "the row with id " + order.id + " is another one");
            }
        }
    }
}
