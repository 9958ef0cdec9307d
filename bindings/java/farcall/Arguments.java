package farcall;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.io.ByteArrayOutputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The arguments of one call in native memory. Java arrays are copied there and back. */
final class Arguments {
    private static final int CHAR = 1;
    private static final int SHORT = 2;
    private static final int INT = 3;
    private static final int LONG = 4;
    private static final int FLOAT = 5;
    private static final int DOUBLE = 6;
    private static final int SCOMPLEX = 7;
    private static final int DCOMPLEX = 8;
    private static final int TEXT = 9;
    /** A type that the library refuses. */
    private static final int REFUSED = -1;

    /** Texts in an array of pointers, which the library replaces. */
    private static final int TEXTS = 11;

    private record Copy(MemorySegment from, MemorySegment to) {}

    /** The pointers for the texts of a Java array, which the library sets. */
    private record Texts(MemorySegment pointers, long first, String[] to) {
        /** Whether the call has set the pointers. */
        boolean areMade() {
            return pointers.getAtIndex(ADDRESS, 0).address() != first;
        }

        void free() {
            if (to.length > 0 && areMade()) {
                Native.freeTexts(pointers, to.length);
                pointers.setAtIndex(ADDRESS, 0, MemorySegment.ofAddress(first));
            }
        }
    }

    private final Arena arena;
    private final MemorySegment function;
    private final MemorySegment values;
    private final int count;
    private final List<Copy> results = new ArrayList<>();
    private final List<Texts> texts = new ArrayList<>();
    private final List<RemoteArray> taken = new ArrayList<>();

    Arguments(Arena arena, MemorySegment function, Object[] given) {
        this.arena = arena;
        this.function = function;
        this.count = given.length;
        this.values = arena.allocate(Native.VALUE, Math.max(1, given.length));
        try {
            for (int index = 0; index < given.length; index++) {
                put(index, given[index]);
            }
        } catch (RuntimeException | Error error) {
            giveBack();
            throw error;
        }
    }

    /** Lets stored arrays go, which the library has by itself once the call has started. */
    void giveBack() {
        taken.forEach(RemoteArray::giveBack);
        taken.clear();
    }

    MemorySegment values() {
        return values;
    }

    int count() {
        return count;
    }

    /** Fills the Java arrays that the call has written to. */
    void copyBack() {
        for (Copy copy : results) {
            copy.to.copyFrom(copy.from);
        }
        for (Texts array : texts) {
            for (int index = 0; index < array.to.length; index++) {
                array.to[index] = Native.string(array.pointers.getAtIndex(ADDRESS, index));
            }
        }
        free().run();
    }

    /** Frees the texts that were not read, before their memory is freed. */
    Runnable free() {
        List<Texts> made = texts;
        return () -> made.forEach(Texts::free);
    }

    /** The memory of an array of numbers. */
    static MemorySegment memory(Object array) {
        return switch (array) {
            case byte[] bytes -> MemorySegment.ofArray(bytes);
            case short[] numbers -> MemorySegment.ofArray(numbers);
            case int[] numbers -> MemorySegment.ofArray(numbers);
            case long[] numbers -> MemorySegment.ofArray(numbers);
            case float[] numbers -> MemorySegment.ofArray(numbers);
            case double[] numbers -> MemorySegment.ofArray(numbers);
            default ->
                    throw new FarcallException(
                            FarcallException.Status.ARGUMENT,
                            array.getClass() + " cannot stay at a server: put an array of numbers");
        };
    }

    /** The type of its elements. */
    static int kind(Object array) {
        return switch (array) {
            case byte[] bytes -> CHAR;
            case short[] numbers -> SHORT;
            case int[] numbers -> INT;
            case long[] numbers -> LONG;
            case float[] numbers -> FLOAT;
            default -> DOUBLE;
        };
    }

    /** Bytes of one of them. */
    static long size(Object array) {
        return switch (kind(array)) {
            case CHAR -> 1;
            case SHORT -> 2;
            case INT, FLOAT -> 4;
            default -> 8;
        };
    }

    private void put(int index, Object given) {
        switch (given) {
            case null -> set(index, MemorySegment.NULL, REFUSED, false);
            case Byte number -> set(index, arena.allocateFrom(JAVA_LONG, number), LONG, true);
            case Short number -> set(index, arena.allocateFrom(JAVA_LONG, number), LONG, true);
            case Integer number -> set(index, arena.allocateFrom(JAVA_LONG, number), LONG, true);
            case Long number -> set(index, arena.allocateFrom(JAVA_LONG, number), LONG, true);
            case Character letter when letter > 127 && Native.type(function, index) == CHAR ->
                    throw refused(
                            index,
                            "is '" + letter + "', which has several bytes: pass an ASCII character"
                                    + " or a number");
            case Character letter -> set(index, arena.allocateFrom(JAVA_LONG, letter), LONG, true);
            case Float number -> set(index, arena.allocateFrom(JAVA_FLOAT, number), FLOAT, true);
            case Double number ->
                    set(index, arena.allocateFrom(JAVA_DOUBLE, number), DOUBLE, true);
            case Complex number -> {
                MemorySegment parts = arena.allocateFrom(JAVA_DOUBLE, number.re(), number.im());
                set(index, parts, DCOMPLEX, true);
            }
            case String text ->
                    set(index, arena.allocateFrom(JAVA_BYTE, utf8(index, text)), TEXT, true);
            case String[] texts when Native.isWritten(function, index) -> returned(index, texts);
            case String[] texts -> {
                var bytes = new ByteArrayOutputStream();
                for (String text : texts) {
                    bytes.writeBytes(ended(index, text));
                }
                set(index, arena.allocateFrom(JAVA_BYTE, bytes.toByteArray()), TEXT, true);
            }
            case byte[] array -> array(index, MemorySegment.ofArray(array), CHAR);
            case short[] array -> array(index, MemorySegment.ofArray(array), SHORT);
            case int[] array -> array(index, MemorySegment.ofArray(array), INT);
            case long[] array -> array(index, MemorySegment.ofArray(array), LONG);
            case float[] array ->
                    array(index, MemorySegment.ofArray(array), orComplex(index, FLOAT, SCOMPLEX));
            case double[] array ->
                    array(index, MemorySegment.ofArray(array), orComplex(index, DOUBLE, DCOMPLEX));
            case RemoteArray array -> {
                MemorySegment handle = array.take();
                taken.add(array);
                set(index, handle, REFUSED, false);
            }
            case ByteBuffer bytes -> {
                if (Native.type(function, index) != CHAR) {
                    checkOrder(index, bytes.order());
                }
                memory(index, MemorySegment.ofBuffer(bytes), Native.type(function, index));
            }
            case ShortBuffer numbers -> {
                checkOrder(index, numbers.order());
                memory(index, MemorySegment.ofBuffer(numbers), SHORT);
            }
            case IntBuffer numbers -> {
                checkOrder(index, numbers.order());
                memory(index, MemorySegment.ofBuffer(numbers), INT);
            }
            case LongBuffer numbers -> {
                checkOrder(index, numbers.order());
                memory(index, MemorySegment.ofBuffer(numbers), LONG);
            }
            case FloatBuffer numbers -> {
                checkOrder(index, numbers.order());
                int kind = orComplex(index, FLOAT, SCOMPLEX);
                memory(index, MemorySegment.ofBuffer(numbers), kind);
            }
            case DoubleBuffer numbers -> {
                checkOrder(index, numbers.order());
                int kind = orComplex(index, DOUBLE, DCOMPLEX);
                memory(index, MemorySegment.ofBuffer(numbers), kind);
            }
            case MemorySegment memory -> memory(index, memory, Native.type(function, index));
            default ->
                    throw refused(
                            index,
                            "is of "
                                    + given.getClass()
                                    + ": pass a number, a String, Complex, an array of numbers or"
                                    + " Strings,"
                                    + " a buffer of numbers or a MemorySegment");
        }
    }

    private FarcallException refused(int index, String why) {
        return new FarcallException(
                FarcallException.Status.ARGUMENT,
                Native.name(function) + ": argument " + (index + 1) + " " + why);
    }

    /** A text that UTF-8 can hold. */
    private byte[] utf8(int index, String text) {
        try {
            ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            return Arrays.copyOf(bytes.array(), bytes.limit());
        } catch (CharacterCodingException wrong) {
            throw refused(index, "has a surrogate without its pair, which is no text");
        }
    }

    /** A text of an array, with a NUL after it. */
    private byte[] ended(int index, String text) {
        if (text == null) {
            throw refused(index, "has a null among its texts");
        }
        if (text.indexOf('\0') >= 0) {
            throw refused(index, "has a text with a NUL in it");
        }
        byte[] bytes = utf8(index, text);
        return Arrays.copyOf(bytes, bytes.length + 1);
    }

    private void returned(int index, String[] given) {
        MemorySegment pointers = arena.allocate(ADDRESS, Math.max(1, given.length));
        boolean read = Native.isRead(function, index);
        MemorySegment empty = arena.allocateFrom("");
        for (int at = 0; at < given.length; at++) {
            boolean has = read && given[at] != null;
            MemorySegment text =
                    has ? arena.allocateFrom(JAVA_BYTE, ended(index, given[at])) : empty;
            pointers.setAtIndex(ADDRESS, at, text);
        }
        if (texts.stream().anyMatch(other -> other.to == given)) {
            throw refused(index, "is written and is the same array as another one that is");
        }
        texts.add(new Texts(pointers, pointers.getAtIndex(ADDRESS, 0).address(), given));
        set(index, pointers.asSlice(0, given.length * ADDRESS.byteSize()), TEXTS, false);
    }

    private int orComplex(int index, int real, int complex) {
        return Native.type(function, index) == complex ? complex : real;
    }

    /** The library reads numbers in the order of this machine. */
    private void checkOrder(int index, ByteOrder order) {
        if (order != ByteOrder.nativeOrder()) {
            throw refused(
                    index,
                    "is a buffer whose bytes are "
                            + order
                            + ": make it with order(ByteOrder.nativeOrder())");
        }
    }

    /**
     * The memory of elements of a kind, of which the call checks type and size. Memory without a
     * type has that of the interface.
     */
    private void memory(int index, MemorySegment memory, int kind) {
        if (!memory.scope().isAlive()) {
            throw refused(index, "is memory of an arena that is closed");
        }
        if (memory.isNative()) {
            set(index, memory, kind, memory.isReadOnly());
        } else {
            array(index, memory, kind);
        }
    }

    private void array(int index, MemorySegment heap, int kind) {
        boolean read = Native.isRead(function, index);
        boolean written = Native.isWritten(function, index) && !heap.isReadOnly();
        MemorySegment copy = arena.allocate(Math.max(1, heap.byteSize()), 16);
        MemorySegment data = copy.asSlice(0, heap.byteSize());
        if (read) {
            data.copyFrom(heap);
        }
        if (written) {
            checkAlone(index, heap);
            results.add(new Copy(data, heap));
        }
        set(index, data, kind, heap.isReadOnly());
    }

    /** Native memory is checked by the library, but these arrays are copies there. */
    private void checkAlone(int index, MemorySegment heap) {
        for (Copy other : results) {
            if (other.to.asOverlappingSlice(heap).isPresent()) {
                throw refused(index, "is written and shares memory with another one that is");
            }
        }
    }

    private void set(int index, MemorySegment data, int kind, boolean readOnly) {
        long offset = index * Native.VALUE.byteSize();
        values.set(ADDRESS, offset, data);
        values.set(JAVA_LONG, offset + 8, data.byteSize());
        values.set(JAVA_INT, offset + 16, kind);
        values.set(JAVA_INT, offset + 20, readOnly ? 1 : 0);
    }
}
