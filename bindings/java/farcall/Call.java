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

    /** What remains of a call that is no longer referenced. */
    private record Remains(long session, Arena arena, Runnable free) implements Runnable {
        @Override
        public void run() {
            Native.cancel(session);
            free.run();
            arena.close();
        }
    }

    private final long session;
    private final Cleaner.Cleanable remains;
    private Arguments arguments;

    Call(long session, Arena arena, Arguments arguments) {
        this.session = session;
        this.arguments = arguments;
        this.remains = CLEANER.register(this, new Remains(session, arena, arguments.free()));
    }

    /**
     * Waits for the end; throws a {@link FarcallException} inside an ExecutionException if the
     * call failed.
     */
    @Override
    public Void get() throws ExecutionException {
        return end(Native.await(session, -1));
    }

    /** The same for at most so long; the call continues after a TimeoutException. */
    @Override
    public Void get(long timeout, TimeUnit unit) throws ExecutionException, TimeoutException {
        int status = Native.await(session, unit.toNanos(Math.max(0, timeout)) * 1e-9);
        if (status == Native.RUNNING) {
            throw new TimeoutException("the call goes on");
        }
        return end(status);
    }

    private synchronized Void end(int status) throws ExecutionException {
        if (status == Native.CANCELLED) {
            finish();
            throw new CancellationException(Native.failure().getMessage());
        }
        if (status != Native.OK) {
            FarcallException failure = Native.failure();
            finish();
            throw new ExecutionException(failure.getMessage(), failure);
        }
        if (arguments != null) {
            arguments.copyBack();
            finish();
        }
        return null;
    }

    private void finish() {
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
        return Native.timesOfSession(session);
    }

    /** Waits until one of the calls has ended, also with a failure, and returns it. */
    public static Call waitAny(List<Call> calls) {
        long which = Native.awaitOne(sessions(calls));
        return calls.stream()
                .filter(call -> call.session == which)
                .findFirst()
                .orElseThrow(Native::failure);
    }

    /** Waits until all of the calls have ended, and fills their arrays. Throws if one failed. */
    public static void waitAll(List<Call> calls) throws ExecutionException {
        Native.awaitAll(sessions(calls));
        for (Call call : calls) {
            call.get();
        }
    }

    private static long[] sessions(List<Call> calls) {
        return calls.stream().mapToLong(call -> call.session).toArray();
    }
}
