package org.apache.shardingsphere.infra.algorithm.keygen.core;

import java.util.Collection;
import org.apache.shardingsphere.infra.algorithm.core.context.AlgorithmSQLContext;

/** What ShardingSphere 5.5 asks of a generator of keys, with what it inherits. */
public interface KeyGenerateAlgorithm {
    Collection<? extends Comparable<?>> generateKeys(AlgorithmSQLContext context, int keyGenerateCount);

    default boolean isSupportAutoIncrement() {
        throw new UnsupportedOperationException("a stub");
    }

    default String getType() {
        throw new UnsupportedOperationException("a stub");
    }
}
