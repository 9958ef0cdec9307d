// The elements of arguments and results, as arrays of Octave of the exact type of the interface.
//
// An array that has this type already is not copied. A number that does not fit is an error, which
// names the argument.
#pragma once

#include <farcall.h>

#include <octave/oct.h>

#include <cmath>
#include <algorithm>
#include <limits>
#include <memory>
#include <string>

namespace
{

// The largest whole number below which a `double` holds every whole number.
constexpr double exact = 9007199254740991.0;

// Marks the type of an integer without a sign.
constexpr int is_unsigned = 0x100;

// ---- Errors ----

// An error about an argument of the caller.
[[noreturn]] void refuse (const std::string& text)
{
  error_with_id ("farcall:argument", "%s", text.c_str ());
}

// The error that the library had last. Its identifier says whose fault it was.
[[noreturn]] void fail (const char *message = nullptr, int status = farcall_error_status ())
{
  static const char *names[] = {"internal", "argument", "unknown-function", "connection",
                                "timeout", "library", "server", "internal", "running",
                                "cancelled", "unknown-session"};
  const int known = static_cast<int> (std::size (names));
  std::string id = std::string ("farcall:") + names[status > 0 && status < known ? status : 0];
  error_with_id (id.c_str (), "%s", message ? message : farcall_error_message ());
}

// ---- Arguments ----

// The elements of an argument, in an array of Octave.
struct Elements
{
  virtual ~Elements () = default;
  virtual const void *read () const = 0;
  virtual void *write () = 0;
  virtual dim_vector shape () const = 0;
  virtual size_t bytes () const = 0;
  virtual void reshape (const dim_vector& shape) = 0;
  virtual void permute (const Array<octave_idx_type>& order) = 0;
  virtual octave_value value () const = 0;
};

template <typename A> struct ElementsOf : Elements
{
  A array;
  explicit ElementsOf (A given) : array (std::move (given)) { }
  const void *read () const override { return array.data (); }
  // It copies the elements first if another value of Octave has them, too.
  void *write () override { return array.fortran_vec (); }
  dim_vector shape () const override { return array.dims (); }
  size_t bytes () const override { return array.numel () * sizeof (*array.data ()); }
  void reshape (const dim_vector& shape) override { array = A (array.reshape (shape)); }
  void permute (const Array<octave_idx_type>& order) override { array = A (array.permute (order)); }
  octave_value value () const override { return octave_value (array); }
};

template <typename A> std::unique_ptr<Elements> elements (A array)
{
  return std::make_unique<ElementsOf<A>> (std::move (array));
}

void check_numeric (const octave_value& value, const std::string& name)
{
  if (! value.isnumeric () && ! value.islogical ())
    refuse ("argument `" + name + "` must be numeric, not " + value.class_name ());
}

NDArray numbers_of (const octave_value& value, const std::string& name)
{
  check_numeric (value, name);
  if (value.iscomplex ())
    refuse ("argument `" + name + "` must be real, not complex");
  return value.array_value ();
}

// Whole numbers that a floating-point number may not hold exactly.
void check_digits (const octave_value& value, double most, const std::string& name)
{
  if (! value.isinteger ())
    return;
  const NDArray numbers = value.array_value ();
  for (octave_idx_type place = 0; place < numbers.numel (); place++)
    if (std::abs (numbers.xelem (place)) > most)
      refuse ("argument `" + name + "`: its integers have more digits than the function takes");
}

NDArray doubles (const octave_value& value, const std::string& name)
{
  const NDArray numbers = numbers_of (value, name);
  check_digits (value, exact, name);
  return numbers;
}

bool is_finite (double number) { return std::isfinite (number); }
bool is_finite (const Complex& number)
{
  return std::isfinite (number.real ()) && std::isfinite (number.imag ());
}
bool is_finite (const FloatComplex& number)
{
  return std::isfinite (number.real ()) && std::isfinite (number.imag ());
}

// Numbers that no `float` holds are refused, and do not become infinite.
template <typename A, typename B> A floats (const B& numbers, const std::string& name)
{
  const A near (numbers);
  for (octave_idx_type place = 0; place < numbers.numel (); place++)
    if (is_finite (numbers.xelem (place)) && ! is_finite (near.xelem (place)))
      refuse ("argument `" + name + "` has a number that is too large for a float");
  return near;
}

std::unique_ptr<Elements> float_elements (const octave_value& value, const std::string& name)
{
  if (value.is_single_type () && ! value.iscomplex ())
    return elements (value.float_array_value ());
  const NDArray numbers = numbers_of (value, name);
  check_digits (value, 1 << std::numeric_limits<float>::digits, name);
  return elements (floats<FloatNDArray> (numbers, name));
}

std::unique_ptr<Elements> complex_elements (const octave_value& value, int type,
                                            const std::string& name)
{
  check_numeric (value, name);
  if (type == FARCALL_DCOMPLEX)
    {
      check_digits (value, exact, name);
      return elements (value.complex_array_value ());
    }
  if (value.is_single_type ())
    return elements (value.float_complex_array_value ());
  check_digits (value, 1 << std::numeric_limits<float>::digits, name);
  return elements (floats<FloatComplexNDArray> (value.complex_array_value (), name));
}

// Numbers as whole numbers of the type N.
template <typename A, typename N>
std::unique_ptr<Elements> whole (const octave_value& value, const std::string& name)
{
  const double least = std::max<double> (std::numeric_limits<N>::min (), -exact);
  const double most = std::min<double> (std::numeric_limits<N>::max (), exact);
  const NDArray numbers = numbers_of (value, name);
  A array (numbers.dims ());
  for (octave_idx_type place = 0; place < numbers.numel (); place++)
    {
      const double number = numbers.xelem (place);
      if (! (number >= least && number <= most) || number != std::trunc (number))
        {
          char shown[40], bounds[80];
          snprintf (shown, sizeof shown, std::isnan (number) ? "NaN" : "%.15g", number);
          snprintf (bounds, sizeof bounds, "from %.0f to %.0f", least, most);
          refuse ("argument `" + name + "`: " + shown + " is not a whole number " + bounds);
        }
      array.xelem (place) = static_cast<N> (number);
    }
  return elements (std::move (array));
}

// Integers of 64 bits as those with, or without, a sign: a floating-point number does not hold all.
template <typename A, typename B>
std::unique_ptr<Elements> other_sign (const B& numbers, const std::string& name)
{
  A array (numbers.dims ());
  for (octave_idx_type place = 0; place < numbers.numel (); place++)
    {
      const auto number = numbers.xelem (place).value ();
      const auto same = static_cast<decltype (array.xelem (0).value ())> (number);
      if ((number < 0) != (same < 0))
        refuse ("argument `" + name + "`: " + std::to_string (number) + " is "
                + (number < 0 ? "negative" : "past 2^63 - 1"));
      array.xelem (place) = same;
    }
  return elements (std::move (array));
}

std::unique_ptr<Elements> characters (const octave_value& value, const std::string& name)
{
  if (value.is_string ())
    return elements (charNDArray (value.char_array_value ()));
  return whole<charNDArray, signed char> (value, name);
}

// A value as elements of a type. An array that has this type already is not copied.
std::unique_ptr<Elements> pack (const octave_value& value, int type, const std::string& name)
{
  // Structures and functions have no full value.
  if (! value.is_string ())
    check_numeric (value, name);
  const octave_value full = value.full_value ();
  switch (type)
    {
    case FARCALL_CHAR:
      return characters (full, name);
    case FARCALL_SHORT:
      return full.is_int16_type () ? elements (full.int16_array_value ())
                                   : whole<int16NDArray, int16_t> (full, name);
    case FARCALL_INT:
      return full.is_int32_type () ? elements (full.int32_array_value ())
                                   : whole<int32NDArray, int32_t> (full, name);
    case FARCALL_LONG:
      if (full.is_uint64_type ())
        return other_sign<int64NDArray> (full.uint64_array_value (), name);
      return full.is_int64_type () ? elements (full.int64_array_value ())
                                   : whole<int64NDArray, int64_t> (full, name);
    case FARCALL_CHAR | is_unsigned:
      return full.is_uint8_type () ? elements (full.uint8_array_value ())
                                   : whole<uint8NDArray, uint8_t> (full, name);
    case FARCALL_SHORT | is_unsigned:
      return full.is_uint16_type () ? elements (full.uint16_array_value ())
                                    : whole<uint16NDArray, uint16_t> (full, name);
    case FARCALL_INT | is_unsigned:
      return full.is_uint32_type () ? elements (full.uint32_array_value ())
                                    : whole<uint32NDArray, uint32_t> (full, name);
    case FARCALL_LONG | is_unsigned:
      if (full.is_int64_type ())
        return other_sign<uint64NDArray> (full.int64_array_value (), name);
      return full.is_uint64_type () ? elements (full.uint64_array_value ())
                                    : whole<uint64NDArray, uint64_t> (full, name);
    case FARCALL_FLOAT:
      return float_elements (full, name);
    case FARCALL_DOUBLE:
      return elements (doubles (full, name));
    case FARCALL_SCOMPLEX:
    case FARCALL_DCOMPLEX:
      return complex_elements (full, type, name);
    default:
      refuse ("argument `" + name + "` has a type that Octave cannot pass");
    }
}

// Zeros for an array that a call fills.
std::unique_ptr<Elements> room (const dim_vector& shape, int type, const std::string& name)
{
  switch (type)
    {
    case FARCALL_CHAR:
      return elements (charNDArray (shape, '\0'));
    case FARCALL_SHORT:
      return elements (int16NDArray (shape, octave_int16 (0)));
    case FARCALL_INT:
      return elements (int32NDArray (shape, octave_int32 (0)));
    case FARCALL_LONG:
      return elements (int64NDArray (shape, octave_int64 (0)));
    case FARCALL_CHAR | is_unsigned:
      return elements (uint8NDArray (shape, octave_uint8 (0)));
    case FARCALL_SHORT | is_unsigned:
      return elements (uint16NDArray (shape, octave_uint16 (0)));
    case FARCALL_INT | is_unsigned:
      return elements (uint32NDArray (shape, octave_uint32 (0)));
    case FARCALL_LONG | is_unsigned:
      return elements (uint64NDArray (shape, octave_uint64 (0)));
    case FARCALL_FLOAT:
      return elements (FloatNDArray (shape, 0.0f));
    case FARCALL_DOUBLE:
      return elements (NDArray (shape, 0.0));
    case FARCALL_SCOMPLEX:
      return elements (FloatComplexNDArray (shape, FloatComplex (0.0f)));
    case FARCALL_DCOMPLEX:
      return elements (ComplexNDArray (shape, Complex (0.0)));
    default:
      refuse ("result `" + name + "` has a type that Octave does not have");
    }
}

}
