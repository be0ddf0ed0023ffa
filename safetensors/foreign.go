package safetensors

import (
	"bytes"
	"errors"
	"io"
)

// Foreign is the actual format of a file that was opened as safetensors. Its
// String describes the format and what to do about it.
type Foreign uint8

// Formats and files found in place of a safetensors file.
const (
	Unrecognized Foreign = iota
	Empty                // zero bytes
	Folder
	ShardIndex // JSON that lists the shards of a model
	JSON
	ZIP      // written by torch.save, among others
	EmptyZIP // an archive without files
	Pickle   // written by torch.save before PyTorch 1.6
	Tar      // written by torch.save before PyTorch 0.1.10
	GGUF
	LFSPointer // left by Git in place of a large file
	WebPage
	HDF5
	NumPy
	Gzip
	Zstandard
)

var foreign = [...]string{
	Unrecognized: "of no format that is known here",
	Empty:        "an empty file of 0 bytes: get it again",
	Folder:       "a folder: weights.Open opens the model in it",
	ShardIndex:   "an index of shards: OpenIndex opens it together with them, and so does weights.Open",
	JSON:         "JSON and no file of tensors: name that one, or the index of its shards",
	ZIP:          "a zip archive, as torch.save writes them: torchfile.Open opens it, and weights.Open if you name it .pt",
	EmptyZIP:     "an empty zip archive",
	Pickle:       "a pickle, as torch.save wrote them before PyTorch 1.6: torchfile.Open opens it, and weights.Open if you name it .pt",
	Tar:          "a tar archive, as PyTorch wrote before 0.1.10; PyTorch itself loads it with weights_only=False only",
	GGUF:         "a GGUF file, which is not read: use the model that it was made of",
	LFSPointer:   "a pointer of Git LFS to the file; get it with git lfs pull",
	WebPage:      "a web page or the like: the address that it came from is not that of the file",
	HDF5:         "an HDF5 file, which is not read",
	NumPy:        "an array of NumPy, which is not read",
	Gzip:         "a file compressed with gzip: decompress it first",
	Zstandard:    "a file compressed with zstd: decompress it first",
}

// String returns a description of the format and what to do about it.
func (f Foreign) String() string {
	if int(f) < len(foreign) {
		return foreign[f]
	}
	return foreign[Unrecognized]
}

// magics lists the magic bytes of other formats. Recognizing JSON or a pickle
// takes more than that.
var magics = []struct {
	at    int
	magic string
	is    Foreign
}{
	{257, "ustar", Tar},
	{0, "PK\x03\x04", ZIP},
	{0, "PK\x05\x06", EmptyZIP},
	{0, "version https://git-lfs", LFSPointer},
	{0, "GGUF", GGUF},
	{0, "\x89HDF\r\n\x1a\n", HDF5},
	{0, "\x93NUMPY", NumPy},
	{0, "\x1f\x8b", Gzip},
	{0, "\x28\xb5\x2f\xfd", Zstandard},
}

// RecognizeBytes is the number of bytes that Recognize examines.
const RecognizeBytes = 512

// Recognize guesses the format of a file that is not safetensors from its first
// bytes (all of them for a short file). Use the result for messages only:
// Unrecognized may be any format, including safetensors.
func Recognize(first []byte) Foreign {
	first = first[:min(len(first), RecognizeBytes)]
	if len(first) == 0 {
		return Empty
	}
	for _, m := range magics {
		if m.at <= len(first) && bytes.HasPrefix(first[m.at:], []byte(m.magic)) {
			return m.is
		}
	}
	if len(first) > lengthSize && first[lengthSize] == '{' && first[lengthSize-1] == 0 {
		return Unrecognized // the length of a header, then its first byte
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(first, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case bytes.HasPrefix(text, []byte("{")) && bytes.Contains(text, []byte(`"weight_map"`)):
		return ShardIndex
	case bytes.HasPrefix(text, []byte("{")), bytes.HasPrefix(text, []byte("[")):
		return JSON
	case bytes.HasPrefix(text, []byte("<")):
		return WebPage
	case len(first) > 2 && first[0] == 0x80 && first[1] <= 5 && first[2] != 0: // a pickle protocol followed by an opcode
		return Pickle
	}
	return Unrecognized
}

// recognized adds the actual format of the file to the error of a file that
// breaks the rules.
func recognized(err error, r io.ReaderAt, size int64) error {
	var f *FormatError
	if !errors.As(err, &f) || f.Foreign != Unrecognized {
		return err
	}
	switch f.Rule {
	case ErrHeaderTooSmall, ErrHeaderTooLarge, ErrHeaderPastEnd, ErrUTF8, ErrSyntax:
	default:
		return err // the header was valid up to here
	}
	first := make([]byte, min(size, RecognizeBytes))
	if n, err := r.ReadAt(first, 0); n == len(first) || err == io.EOF {
		f.Foreign = Recognize(first[:n])
	}
	return err
}
