package dev.firesteel.bridge;

import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;

/**
 * An endpoint of the driver that receives nothing. That it exists tells executors started early that they may register: see
 * {@link EarlyExecutor}. They find it with Spark's own protocol, so whatever protects that protects this.
 */
final class Gate implements RpcEndpoint {
    static final String NAME = "FiresteelGate";

    private final RpcEnv rpcEnv;

    Gate(RpcEnv rpcEnv) {
        this.rpcEnv = rpcEnv;
    }

    @Override
    public RpcEnv rpcEnv() {
        return rpcEnv;
    }
}
