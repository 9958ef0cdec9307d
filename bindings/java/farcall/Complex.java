package farcall;

/**
 * A complex scalar. Arrays of complex numbers are {@code double[]} or {@code float[]} with real and
 * imaginary parts in turn.
 *
 * @param re real part
 * @param im imaginary part
 */
public record Complex(double re, double im) {}
