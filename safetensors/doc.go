// Package safetensors reads and writes files in the safetensors format: a JSON
// header that names the tensors, then their bytes.
//
// [Open] maps a file and checks every rule of the format before it returns;
// after that a tensor costs no I/O until its bytes are touched. [OpenModel]
// and [OpenIndex] do the same for a model that is spread over shards.
// [WriteFile], [Write] and [WriteSharded] stream tensors out; the same tensors
// and metadata give the same bytes, which are those that the Hugging Face
// writer makes.
//
// Files that are not local are read on demand, a tensor at a time: [OpenReaderAt]
// for any [io.ReaderAt], [OpenFS] for any [io/fs.FS], package remote for HTTP.
// [OpenPlaced] is for tensors in files of other formats. Their views are used
// like those of mapped files; View says what costs what.
//
// # Loading
//
// [Load] brings many tensors, of many files, to a [Sink]: memory of the host, a
// device's ring of pinned slots. [PlanLoad] cuts the files into chunks of whole
// pages, several readers work through them, and the way to read is chosen by
// what is in the page cache and what turns out to be fastest; [LoadStats] says
// what it was. [LoadHost] makes a private copy in memory, [Populate] only has
// the pages of a mapping there before they are needed.
//
// # How long bytes live
//
// A mapping is memory that the garbage collector does not see. The bytes of a
// tensor are therefore reached in one of these ways:
//
//   - [View.Use] lends them to a function. The file cannot be closed in the
//     meantime.
//   - [View.Hold] lends them until [Hold.Release]. The file cannot be closed in
//     the meantime: [File.Close] fails with ErrInUse and says how many uses and
//     holds there are.
//   - [View.Bytes] and [As] hand them out. They are valid as long as the View
//     that gave them is reachable; whoever keeps the slice keeps the View, and
//     calls [runtime.KeepAlive] on it after the last access where nothing else
//     does. Close never unmaps such bytes; the garbage collector does, after the
//     last View is gone.
//   - [Read], [View.ReadAt] and the like copy them, [View.WriteTo] passes them
//     on. Read also converts the byte order and does not mind where they lie.
//
// The bytes are read-only: writing to them crashes the program.
//
// # Files that change
//
// What becomes of a file that is cut short, of a disk or a network that fails
// while the file is open, depends on how the bytes are reached:
//
//	Open, Lookup                  the header was read and checked once; no effect
//	Use                           ErrFault for what the function itself reads,
//	                              a crash for what its goroutines read
//	ReadAt, Read, ReadInto,       ErrFault
//	Slice.ReadInto and ReadAt
//	WriteTo, and writers of the   ErrFault, whether w copies the bytes itself
//	Entry                         or has the system copy them
//	Bytes, As, Hold of a mapping  a crash of the program that touches them
//	anything of a file that is    ErrFault, with the error of the reader
//	not mapped
//
// On Windows a file that is mapped cannot be cut short or replaced: the one who
// tries gets the error.
//
// A file that is overwritten in place shows its new bytes in the tensors of a
// mapping, and nothing notices, because looking would cost as much as reading.
// Writers that replace the file, as this package's do, leave the mapping of the
// old one untouched. Package remote notices: its files are of one version, or
// an error.
//
// # Writing
//
// A file is the same, byte for byte, as that of the Hugging Face writer for the
// same tensors and up to one key of metadata; the order of more is random there
// and sorted here. In a folder of shards the index is the same, too. The
// libraries differ in that, so it is the one of the library that the stem
// belongs to: transformers counts parameters beside bytes, sorts and ends the
// last line (model), diffusers does not count (diffusion_pytorch_model),
// huggingface_hub keeps the order of the tensors and does not end the line (any
// other stem).
//
// While a file or a model is being replaced, and wherever the program ends,
// readers find the old one or the new one. [Durable] extends that to crashes of
// the machine.
//
// # Errors
//
// Every rule of the format has an error of its own, for use with [errors.Is];
// what is wrong with a file is a [*FormatError] that says where, what was found
// and what was expected; of a file of another format also which it is, by
// [Recognize], and what opens that.
package safetensors
