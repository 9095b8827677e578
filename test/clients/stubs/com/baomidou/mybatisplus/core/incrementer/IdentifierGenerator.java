package com.baomidou.mybatisplus.core.incrementer;

/** What MyBatis-Plus 3.5 asks of a generator; of its defaults only the signatures. */
public interface IdentifierGenerator {
    default boolean assignId(Object idValue) {
        throw new UnsupportedOperationException("a stub");
    }

    Number nextId(Object entity);

    default String nextUUID(Object entity) {
        throw new UnsupportedOperationException("a stub");
    }
}
