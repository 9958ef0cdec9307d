// Calls: what lives at a server, the arguments of a call with their shapes, its start and its end.
//
// The memory of a call stays where it is until the call has ended or was cancelled. Matrices are as
// Octave has them: for functions that take matrices by rows, their elements are put in that order.
#pragma once

#include "elements.h"

#include <octave/Cell.h>
#include <octave/oct-map.h>
#include <octave/quit.h>

#include <vector>

namespace
{

// Most dimensions of an array.
constexpr size_t dimensions = 16;

// ---- What lives at a server ----

struct Server
{
  farcall_server *handle;
  std::string address;
  ~Server () { farcall_disconnect (handle); }
};

struct Object
{
  std::shared_ptr<Server> server;
  farcall_object *handle;
  std::string name;
  ~Object () { farcall_drop_object (handle); }
};

// A function is valid as long as its server or object.
struct Function
{
  std::shared_ptr<Server> server;
  std::shared_ptr<Object> object;
  farcall_function *handle;

  std::string name () const { return farcall_function_name (handle); }
  size_t count () const { return farcall_argument_count (handle); }
  std::string argument (size_t index) const { return farcall_argument_name (handle, index); }
};

// An argument with what the interface says of it, in memory that stays until the call has ended.
struct Slot
{
  std::string name;
  int kind;
  int type;
  bool is_read;
  bool is_written;
  std::vector<size_t> shape;

  std::unique_ptr<Elements> elements;
  int64_t wide = 0;
  // The texts that the caller passes.
  Cell cells;
  // A text, or texts that each end with NUL.
  std::string text;
  // Their addresses, with NULL at the end. The call replaces those of texts that it writes.
  std::vector<char *> texts;
  bool has_new_texts = false;

  Slot () = default;
  Slot (Slot&&) = delete;
  ~Slot () { free_texts (); }

  bool is_array () const { return kind == FARCALL_ARRAY; }
  bool is_text () const { return type == FARCALL_TEXT; }
  // A scalar without a sign that travels in a type with a sign, which holds it.
  bool is_short_unsigned () const
  {
    return (kind == FARCALL_SHORT || kind == FARCALL_INT) && type == (kind | is_unsigned);
  }
  // The caller passes it: texts are also names of files that a call writes.
  bool is_passed () const { return is_read || kind == FARCALL_TEXT; }
  void free_texts ()
  {
    if (has_new_texts && ! texts.empty ())
      farcall_free_texts (texts.data (), texts.size () - 1);
    has_new_texts = false;
  }
};

// Puts the texts of the caller one after the other, for the call.
void lay_texts (Slot& slot)
{
  slot.text.clear ();
  slot.texts.clear ();
  std::vector<size_t> starts;
  for (octave_idx_type place = 0; place < slot.cells.numel (); place++)
    {
      starts.push_back (slot.text.size ());
      slot.text += slot.cells.elem (place).string_value () + '\0';
    }
  for (size_t start : starts)
    slot.texts.push_back (&slot.text[start]);
  slot.texts.push_back (nullptr);
}

void pack_texts (Slot& slot, const octave_value& value)
{
  if (value.iscellstr () && slot.is_array ())
    slot.cells = value.cell_value ();
  else if (value.is_string () && (value.rows () == 1 || value.isempty ()))
    slot.cells = Cell (octave_value (value.isempty () ? "" : value.string_value ()));
  else
    refuse ("argument `" + slot.name + "` must be "
            + (slot.is_array () ? "a cell array of texts" : "one text"));
  for (octave_idx_type place = 0; place < slot.cells.numel (); place++)
    {
      if (slot.cells.elem (place).rows () > 1)
        refuse ("argument `" + slot.name + "` has a text of several rows");
      if (slot.cells.elem (place).string_value ().find ('\0') != std::string::npos)
        refuse ("argument `" + slot.name + "` has a text with a NUL in it");
    }
  lay_texts (slot);
}

void pack_slot (Slot& slot, const octave_value& value)
{
  if (slot.is_text ())
    return pack_texts (slot, value);
  slot.elements = pack (value, slot.type, slot.name);
  const dim_vector shape = slot.elements->shape ();
  if (! slot.is_array () && shape.numel () != 1)
    refuse ("argument `" + slot.name + "` must have one element, not "
            + std::to_string (shape.numel ()));
}

// ---- Shapes ----

using Slots = std::vector<std::unique_ptr<Slot>>;

// The lengths of an array of a call. Scalars and texts alone decide them.
std::vector<size_t> shape_of (const Function& function, const Slots& slots, size_t index)
{
  std::vector<void *> arguments;
  for (const auto& slot : slots)
    {
      void *address = nullptr;
      if (slot->is_text ())
        address = slot->texts.empty () ? nullptr : slot->texts.data ();
      else if (! slot->is_array () && slot->elements)
        address = const_cast<void *> (slot->elements->read ());
      arguments.push_back (address);
    }
  size_t shape[dimensions];
  const int rank = farcall_argument_shape (function.handle, arguments.data (), arguments.size (),
                                           index, shape, dimensions);
  if (rank < 0)
    fail ();
  return std::vector<size_t> (shape, shape + std::min<size_t> (rank, dimensions));
}

// Dimensions of Octave, which has two at least. A vector is a column.
dim_vector octave_shape (const std::vector<size_t>& shape)
{
  dim_vector told (1, 1);
  if (shape.size () > 2)
    told.resize (static_cast<int> (shape.size ()), 1);
  for (size_t place = 0; place < shape.size (); place++)
    told(place) = static_cast<octave_idx_type> (shape[place]);
  return told;
}

// The order of dimensions that makes rows of columns, for functions that take matrices by rows.
Array<octave_idx_type> backwards (size_t rank)
{
  Array<octave_idx_type> order (dim_vector (static_cast<octave_idx_type> (rank), 1));
  for (size_t place = 0; place < rank; place++)
    order(place) = static_cast<octave_idx_type> (rank - 1 - place);
  return order;
}

bool is_turned (const Function& function, const Slot& slot)
{
  return slot.shape.size () > 1 && ! farcall_column_major (function.handle);
}

bool is_vector (const dim_vector& shape)
{
  int lengths = 0;
  for (int place = 0; place < shape.ndims (); place++)
    lengths += shape(place) != 1;
  return lengths <= 1;
}

std::vector<size_t> reversed (std::vector<size_t> shape)
{
  std::reverse (shape.begin (), shape.end ());
  return shape;
}

// Checks the dimensions of an array. A row can stand for a column, and the other way round, and
// `[]` for every array without elements. Returns whether it is one of these.
bool check_shape (const Function& function, const Slot& slot, dim_vector given)
{
  dim_vector wanted = octave_shape (slot.shape);
  wanted.chop_trailing_singletons ();
  given.chop_trailing_singletons ();
  const bool are_vectors = (is_vector (given) && is_vector (wanted))
                           || (given.numel () == 0 && wanted.numel () == 0);
  if (given != wanted && ! (are_vectors && given.numel () == wanted.numel ()))
    refuse (function.name () + ": argument `" + slot.name + "` must be " + wanted.str () + ", not "
            + given.str ());
  return are_vectors;
}

// Checks the dimensions of an array, and puts its elements in the order of the function.
void arrange (const Function& function, Slot& slot)
{
  const bool are_vectors = check_shape (function, slot, slot.elements->shape ());
  if (slot.shape.size () < 2)
    return;
  if (are_vectors)
    slot.elements->reshape (octave_shape (is_turned (function, slot) ? reversed (slot.shape)
                                                                     : slot.shape));
  else if (is_turned (function, slot))
    slot.elements->permute (backwards (slot.shape.size ()));
}

// The same for texts.
void arrange_texts (const Function& function, Slot& slot)
{
  const bool are_vectors = check_shape (function, slot, slot.cells.dims ());
  if (are_vectors || ! is_turned (function, slot))
    return;
  slot.cells = slot.cells.permute (backwards (slot.shape.size ()));
  lay_texts (slot);
}

// ---- Calls ----

struct Call
{
  std::shared_ptr<Function> function;
  Slots slots;
  farcall_session session = 0;
  // Without an error.
  bool has_ended = false;
  // Its results have the order of Octave.
  bool is_arranged = false;

  ~Call ()
  {
    if (session == 0 || has_ended)
      return;
    // Nothing uses the slots after that.
    farcall_cancel (session);
    // Nobody has asked for the results of a call that had ended.
    if (farcall_probe (session) == FARCALL_OK)
      end ();
  }

  // It has ended without an error.
  void end ()
  {
    has_ended = true;
    for (auto& slot : slots)
      slot->has_new_texts = slot->is_array () && slot->is_text () && slot->is_written;
  }
};

Slots slots_of (const Function& function)
{
  Slots slots;
  for (size_t index = 0; index < function.count (); index++)
    {
      auto slot = std::make_unique<Slot> ();
      slot->name = function.argument (index);
      slot->kind = farcall_argument_kind (function.handle, index);
      slot->type = slot->is_array () ? farcall_argument_type (function.handle, index) : slot->kind;
      if (farcall_argument_unsigned (function.handle, index))
        slot->type |= is_unsigned;
      slot->is_read = farcall_argument_read (function.handle, index);
      slot->is_written = farcall_argument_written (function.handle, index);
      if (slot->kind == FARCALL_FUNCTION)
        refuse (function.name () + " takes a function, which Octave cannot pass yet");
      slots.push_back (std::move (slot));
    }
  return slots;
}

void pack_all (const Function& function, Slots& slots, const octave_value_list& given)
{
  std::string names;
  octave_idx_type count = 0;
  for (const auto& slot : slots)
    if (slot->is_passed ())
      {
        names += (count == 0 ? "" : ", ") + slot->name;
        count++;
      }
  if (count != given.length ())
    refuse (function.name () + " takes " + std::to_string (count) + " arguments (" + names
            + "), not " + std::to_string (given.length ()));
  octave_idx_type next = 0;
  for (const auto& slot : slots)
    if (slot->is_passed ())
      pack_slot (*slot, given(next++));

  for (size_t index = 0; index < slots.size (); index++)
    {
      Slot& slot = *slots[index];
      if (! slot.is_array ())
        continue;
      slot.shape = shape_of (function, slots, index);
      if (slot.is_text ())
        {
          if (slot.is_read)
            arrange_texts (function, slot);
          else
            slot.texts.assign (octave_shape (slot.shape).numel () + 1, nullptr);
        }
      else if (slot.is_read)
        arrange (function, slot);
      else
        slot.elements = room (octave_shape (is_turned (function, slot) ? reversed (slot.shape)
                                                                       : slot.shape),
                              slot.type, slot.name);
    }
}

farcall_value value_of (Slot& slot)
{
  farcall_value value = {};
  value.kind = slot.type & ~is_unsigned;
  if (slot.is_text () && slot.is_array () && slot.is_written)
    {
      value.kind = FARCALL_TEXTS;
      value.data = slot.texts.data ();
      value.bytes = (slot.texts.size () - 1) * sizeof (char *);
    }
  else if (slot.is_text ())
    {
      value.data = &slot.text[0];
      // One text is without its NUL.
      value.bytes = slot.text.size () - (slot.is_array () ? 0 : 1);
    }
  else
    {
      Elements& elements = *slot.elements;
      value.data = slot.is_written ? elements.write () : const_cast<void *> (elements.read ());
      value.bytes = elements.bytes ();
      if (slot.is_short_unsigned ())
        {
          slot.wide = elements.value ().int64_array_value ().elem (0).value ();
          value.kind = FARCALL_LONG;
          value.data = &slot.wide;
          value.bytes = sizeof slot.wide;
        }
    }
  static char none[16];
  if (value.data == nullptr)
    value.data = none;
  return value;
}

std::shared_ptr<Call> start (const std::shared_ptr<Function>& function,
                             const octave_value_list& given)
{
  auto call = std::make_shared<Call> ();
  call->function = function;
  call->slots = slots_of (*function);
  pack_all (*function, call->slots, given);
  std::vector<farcall_value> values;
  for (auto& slot : call->slots)
    values.push_back (value_of (*slot));
  call->session = farcall_call_values_async (function->handle, values.data (), values.size ());
  if (call->session == 0)
    fail ();
  return call;
}

// Waits for the end of a call for so many seconds, and in short waits, so that Octave notices that
// its user interrupts it. Returns whether the call has ended.
bool wait (Call& call, double seconds)
{
  double left = seconds;
  while (! call.has_ended)
    {
      const double part = std::max (0.0, std::min (left, 0.1));
      const farcall_status status = farcall_wait (call.session, part);
      OCTAVE_QUIT;
      if (status == FARCALL_RUNNING)
        {
          left -= part;
          if (left <= 0)
            return false;
          continue;
        }
      if (status == FARCALL_CANCELLED)
        fail ("the call was cancelled", status);
      if (status != FARCALL_OK)
        fail ();
      call.end ();
    }
  return true;
}

octave_value texts_of (const Function& function, Slot& slot)
{
  const bool turned = is_turned (function, slot);
  Cell cell (octave_shape (turned ? reversed (slot.shape) : slot.shape));
  for (octave_idx_type place = 0; place < cell.numel (); place++)
    {
      const char *text = slot.texts[place];
      cell(place) = std::string (text == nullptr ? "" : text);
    }
  return turned ? Cell (cell.permute (backwards (slot.shape.size ()))) : cell;
}

// The results of a call that has ended, by name.
octave_value results (Call& call)
{
  octave_scalar_map told;
  for (auto& each : call.slots)
    {
      Slot& slot = *each;
      if (! slot.is_array () || ! slot.is_written)
        continue;
      if (slot.is_text ())
        told.assign (slot.name, texts_of (*call.function, slot));
      else
        {
          if (is_turned (*call.function, slot) && ! call.is_arranged)
            slot.elements->permute (backwards (slot.shape.size ()));
          told.assign (slot.name, slot.elements->value ());
        }
    }
  call.is_arranged = true;
  return told;
}

}
