package org.springframework.context.annotation;

/** Of Spring: on a method whose result is a bean.  Of its elements none is here. */
public @interface Bean {
}
