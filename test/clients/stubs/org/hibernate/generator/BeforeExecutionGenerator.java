package org.hibernate.generator;

import org.hibernate.engine.spi.SharedSessionContractImplementor;

/** As in Hibernate 6.2 and later. */
public interface BeforeExecutionGenerator extends Generator {
    Object generate(SharedSessionContractImplementor session, Object owner, Object currentValue,
            EventType eventType);

    @Override
    default boolean generatedOnExecution() {
        return false;
    }
}
