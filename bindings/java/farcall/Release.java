package farcall;

/** The release of Java that runs a program. It uses nothing that an old release lacks. */
final class Release {
    private static final int NEEDED = 22;

    private Release() {}

    /** Refuses releases without {@code java.lang.foreign}, by which the C library is called. */
    static void check() {
        int release = Runtime.version().feature();
        if (release < NEEDED) {
            throw new UnsupportedOperationException(
                    "the farcall package needs Java "
                            + NEEDED
                            + " or newer, and this is Java "
                            + release
                            + " ("
                            + System.getProperty("java.home")
                            + "): run the program with a newer Java");
        }
    }
}
