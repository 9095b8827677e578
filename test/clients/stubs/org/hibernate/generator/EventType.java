package org.hibernate.generator;

/** As in Hibernate 6. */
public enum EventType {
    INSERT, UPDATE
}
