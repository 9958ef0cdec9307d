package farcall;

/**
 * How long a call took, in seconds.
 *
 * @param send until the server had the arguments
 * @param exec in the library
 * @param recv until the server had sent the results
 * @param other the rest of the total
 * @param total from the start of the call to its return
 */
public record Times(double send, double exec, double recv, double other, double total) {}
