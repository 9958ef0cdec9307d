package farcall;

import java.lang.foreign.Arena;
import java.lang.ref.Cleaner;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A call under way. The {@link #get()} that reports its end fills Java arrays. Do not use other
 * memory until then. A call that is no longer referenced is cancelled.
 */
public final class Call implements Future<Void> {
    private static final Cleaner CLEANER = Cleaner.create();

    /** What remains of a call that is no longer referenced, with the memory that it uses. */
    private record Remains(long session, Arena arena, Runnable free, Object used)
            implements Runnable {
        @Override
        public void run() {
            Native.cancel(session);
            free.run();
            arena.close();
        }
    }

    /** Seconds after which a wait looks whether its thread is interrupted. */
    private static final double PART = 0.05;

    private final long session;
    private final Cleaner.Cleanable remains;
    private Arguments arguments;

    /** The times of a call that has filled its arrays. The library forgets old sessions. */
    private volatile Times times;

    Call(long session, Arena arena, Arguments arguments, Object[] used) {
        this.session = session;
        this.arguments = arguments;
        Remains left = new Remains(session, arena, arguments.free(), used);
        this.remains = CLEANER.register(this, left);
    }

    /**
     * Waits for the end; throws a {@link FarcallException} inside an ExecutionException if the
     * call failed. If the thread is interrupted, the call continues.
     */
    @Override
    public Void get() throws InterruptedException, ExecutionException {
        return end(await(Double.POSITIVE_INFINITY));
    }

    /** The same for at most so long; the call continues after a TimeoutException. */
    @Override
    public Void get(long timeout, TimeUnit unit)
            throws InterruptedException, ExecutionException, TimeoutException {
        int status = await(unit.toNanos(Math.max(0, timeout)) * 1e-9);
        if (status == Native.RUNNING) {
            throw new TimeoutException("the call goes on");
        }
        return end(status);
    }

    /** Waits for the end also if the thread is interrupted, as a call that is not started. */
    Void complete() {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return get();
                } catch (InterruptedException later) {
                    interrupted = true;
                } catch (CancellationException error) {
                    throw new FarcallException(
                            FarcallException.Status.CANCELLED, error.getMessage());
                } catch (ExecutionException error) {
                    throw (FarcallException) error.getCause();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Waits in parts, so that the thread notices when it is interrupted. */
    private int await(double seconds) throws InterruptedException {
        long start = System.nanoTime();
        while (true) {
            checkInterrupt();
            if (times != null) {
                return Native.OK;
            }
            double left = seconds - (System.nanoTime() - start) * 1e-9;
            int status = Native.await(session, Math.max(0, Math.min(left, PART)));
            if (status != Native.RUNNING || left <= PART) {
                return status;
            }
        }
    }

    private Void end(int status) throws ExecutionException {
        if (status == Native.OK) {
            fill();
            return null;
        }
        // Before a lock, behind which a virtual thread may run on another thread of the system.
        FarcallException failure = Native.failure();
        finish();
        if (status == Native.CANCELLED) {
            throw new CancellationException(failure.getMessage());
        }
        throw new ExecutionException(failure.getMessage(), failure);
    }

    private synchronized void fill() {
        if (arguments != null) {
            arguments.copyBack();
            times = Native.timesOfSession(session);
            finish();
        }
    }

    private synchronized void finish() {
        arguments = null;
        remains.clean();
    }

    /** Gives the call up. Returns false if it has ended. */
    @Override
    public boolean cancel(boolean mayInterrupt) {
        boolean running = !isDone();
        Native.cancel(session);
        return running && isCancelled();
    }

    @Override
    public boolean isCancelled() {
        return Native.probe(session) == Native.CANCELLED;
    }

    @Override
    public boolean isDone() {
        return Native.probe(session) != Native.RUNNING;
    }

    /** The times of the call; zeros if it has failed or has not ended. */
    public Times times() {
        return times != null ? times : Native.timesOfSession(session);
    }

    /** Waits until one of the calls has ended, also with a failure, and returns it. */
    public static Call waitAny(List<Call> calls) throws InterruptedException {
        long[] sessions = sessions(calls);
        long which;
        do {
            checkInterrupt();
            which = Native.awaitOne(sessions, PART);
        } while (which < 0);
        for (Call call : calls) {
            if (call.session == which) {
                return call;
            }
        }
        throw Native.failure();
    }

    /** Waits until all of the calls have ended, and fills their arrays. Throws if one failed. */
    public static void waitAll(List<Call> calls) throws InterruptedException, ExecutionException {
        long[] sessions = sessions(calls);
        do {
            checkInterrupt();
        } while (Native.awaitAll(sessions, PART) == Native.RUNNING);
        for (Call call : calls) {
            call.get();
        }
    }

    private static void checkInterrupt() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("the wait was interrupted; calls go on");
        }
    }

    private static long[] sessions(List<Call> calls) {
        return calls.stream().mapToLong(call -> call.session).toArray();
    }
}
