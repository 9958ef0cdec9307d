package farcall;

/**
 * A complex scalar. Arrays of complex numbers are {@code double[]} or {@code float[]} with real and
 * imaginary parts alternating.
 *
 * @param re real part
 * @param im imaginary part
 */
public record Complex(double re, double im) {}
