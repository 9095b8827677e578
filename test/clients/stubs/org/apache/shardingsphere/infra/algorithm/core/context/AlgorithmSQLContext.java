package org.apache.shardingsphere.infra.algorithm.core.context;

/** Of ShardingSphere 5.5: for which table and column keys are wanted. */
public final class AlgorithmSQLContext {
    private AlgorithmSQLContext() {
    }
}
