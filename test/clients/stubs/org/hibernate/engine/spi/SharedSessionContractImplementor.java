package org.hibernate.engine.spi;

/** As in Hibernate 6: nothing of it is used. */
public interface SharedSessionContractImplementor {
}
