package org.springframework.context.annotation;

/** Of Spring: on a class with beans.  Of its elements none is here. */
public @interface Configuration {
}
