package org.hibernate.generator;

import java.io.Serializable;
import java.util.EnumSet;

/** As in Hibernate 6.2 and later, as far as a generator of ids has to have it. */
public interface Generator extends Serializable {
    boolean generatedOnExecution();

    EnumSet<EventType> getEventTypes();
}
