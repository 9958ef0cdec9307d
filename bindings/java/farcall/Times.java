package farcall;

/**
 * The times of a call in seconds.
 *
 * @param send until the server had the arguments
 * @param exec in the library
 * @param recv until the server had sent the results
 * @param other the rest of {@code total}
 * @param total from the start of the call to its return
 */
public record Times(double send, double exec, double recv, double other, double total) {}
