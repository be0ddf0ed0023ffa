// Package torchfile reads the tensors of files that PyTorch's torch.save has
// written (.pt, .pth, .bin, .ckpt) without executing anything in them, as files
// of package safetensors.
//
// [Open] reads one file, [OpenAny] falls back on one where a safetensors file
// does not exist; package weights does the same for folders and indexes. [Scalars]
// returns what in a checkpoint is no tensor, [Verify] compares checksums.
//
// # What is read
//
// Both formats of torch.save: zip archives (since PyTorch 1.6), stored or
// deflated, of either order of bytes, larger than 4 GiB too; and the legacy
// format before it (since 0.1.10). In them dicts, lists and tuples, however
// nested, of dense tensors: state dicts with or without _metadata, parameters,
// optimizers, embedding caches, single tensors; views with strides and shared
// storages. All element types that safetensors has; complex128 and the like,
// quantized, sparse and meta tensors are errors that say so, and so are
// TorchScript archives and the tar archives of before 0.1.10.
//
// # Why it is safe
//
// A checkpoint is a pickle, a program for a machine that can call any function.
// The machine here knows lists, dicts, numbers, strings and the few functions of
// PyTorch that put a tensor together, and those are not called either: what they
// would return is described. It takes what torch.load takes under weights_only,
// and the opcodes of protocols 4 and 5 that mean the same, which torch.load then
// refuses. Any other opcode or global is an error that names it and its place.
//
// Sizes are compared with what is there before memory is taken: lengths of
// strings with what is left of the pickle, numbers of elements with the length
// of the record, views with their storage, records with the file and with each
// other. Values of a pickle may take about 256 MiB, names of tensors 100 MB,
// lists may be nested 1000 deep. Opening takes time in proportion to the size of
// the pickle.
package torchfile
