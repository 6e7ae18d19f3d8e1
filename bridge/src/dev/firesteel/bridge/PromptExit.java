package dev.firesteel.bridge;

import io.netty.util.concurrent.GlobalEventExecutor;
import java.lang.reflect.Field;
import java.util.concurrent.ThreadFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lets the driver's JVM exit when its program ends. When Spark closes its connections, Netty starts a thread that tells their
 * owners, waits a second for more to tell, and keeps the JVM alive meanwhile: a second in which nothing happens. As a daemon
 * thread it does the same work and holds nobody up. The exit code stays the program's.
 */
final class PromptExit {
    private static final Logger LOG = LoggerFactory.getLogger(PromptExit.class);

    private PromptExit() {}

    static void arrange() {
        try {
            Field field = GlobalEventExecutor.class.getDeclaredField("threadFactory");
            field.setAccessible(true);
            ThreadFactory original = (ThreadFactory) field.get(GlobalEventExecutor.INSTANCE);
            ThreadFactory daemons = work -> {
                Thread thread = original.newThread(work);
                thread.setDaemon(true);
                return thread;
            };
            field.set(GlobalEventExecutor.INSTANCE, daemons);
        } catch (ReflectiveOperationException | RuntimeException | LinkageError unknown) {
            // Another Netty: the driver exits a second later.
            LOG.debug("Netty's thread stays as it is.", unknown);
        }
    }
}
