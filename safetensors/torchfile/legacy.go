package torchfile

import (
	"errors"
	"io"
	"math/big"
	"strconv"
)

// The legacy format is written by PyTorch 0.1.10 to 1.5, and by current versions
// of torch.save with _use_new_zipfile_serialization=False. It consists of
// pickles of a magic number, a version, a dict about the machine, the object and
// the keys of the storages, followed by each storage's number of elements and
// bytes, which are little-endian on any machine.

var legacyMagic, _ = new(big.Int).SetString("1950a86a20f9469cfc6c", 16)

const legacyVersion = 1001

func readLegacy(r io.ReaderAt, size int64) (*checkpoint, error) {
	in := newInput(io.NewSectionReader(r, 0, size), min(size, maxPickle))
	storages := map[string]*storage{} // the first storage of each key
	m := newMachine(in, nil)
	run := func(part string) (any, error) {
		v, err := m.run()
		if in.size < size && errors.Is(err, ErrTruncated) {
			return nil, inRecord(part, ErrLimit, "pickles of more than "+byteCount(in.size), "")
		}
		return v, inPickle(err, part)
	}
	magic, err := run("magic number")
	if err != nil {
		return nil, err
	}
	if n, ok := magic.(*big.Int); !ok || n.Cmp(legacyMagic) != 0 {
		return nil, &FormatError{Rule: ErrNotTorch, Found: "a pickle of something else", Expected: "what torch.save has written"}
	}
	version, err := run("version")
	if err != nil {
		return nil, err
	}
	if version != any(int64(legacyVersion)) {
		return nil, inRecord("version", ErrUnsupported, "another", strconv.Itoa(legacyVersion))
	}
	if _, err := run("system"); err != nil {
		return nil, err
	}
	m.persistent = func(id []any) (any, error) {
		v, err := storageOf(id)
		if err != nil {
			return nil, err
		}
		s := v.(*storage)
		if storages[s.key] == nil {
			storages[s.key] = s
		}
		return s, nil
	}
	c := &checkpoint{format: formatLegacy}
	if c.root, err = run("object"); err != nil {
		return nil, err
	}
	m.persistent = nil
	keys, err := run("keys of storages")
	if err != nil {
		return nil, err
	}
	extents, err := legacyStorages(r, size, in.at, keys, storages)
	if err != nil {
		return nil, err
	}
	c.find = func(s *storage) (extent, error) {
		x, ok := extents[s.key]
		if !ok {
			return extent{}, inRecord("storage "+s.key, ErrRecord, "", "")
		}
		return x, nil
	}
	return c, nil
}

// legacyStorages locates the storages from offset at, in the order of the keys.
// It ignores bytes after the last one: some files contain several checkpoints,
// and torch.load reads the first.
func legacyStorages(r io.ReaderAt, size, at int64, keys any, storages map[string]*storage) (map[string]extent, error) {
	list, ok := keys.(*container)
	if !ok || list.kind != kindList {
		return nil, inRecord("keys of storages", ErrPickle, kindOf(keys), "a list")
	}
	extents := make(map[string]extent, len(storages))
	for _, v := range list.items {
		key, ok := v.(string)
		if !ok {
			return nil, inRecord("keys of storages", ErrPickle, kindOf(v), "a string")
		}
		part := "storage " + key
		s := storages[key]
		if s == nil {
			return nil, inRecord(part, ErrStorage, "no tensor that uses it", "")
		}
		if _, twice := extents[key]; twice {
			return nil, inRecord("keys of storages", ErrPickle, quote(key)+" twice", "")
		}
		var b [8]byte
		if at > size-int64(len(b)) {
			return nil, inRecord(part, ErrTruncated, byteCount(size), "")
		}
		if err := readFull(r, b[:], at); err != nil {
			return nil, err
		}
		at += int64(len(b))
		if n := int64(le.Uint64(b[:])); n != s.numel {
			return nil, inRecord(part, ErrStorage, strconv.FormatInt(n, 10)+" elements", strconv.FormatInt(s.numel, 10))
		}
		if s.numel > (size-at)/s.dtype.bytes {
			return nil, inRecord(part, ErrTruncated, byteCount(size-at), strconv.FormatInt(s.numel, 10)+" elements of "+byteCount(s.dtype.bytes))
		}
		n := s.numel * s.dtype.bytes
		extents[key] = extent{record: part, at: at, compressed: n, size: n}
		at += n
	}
	return extents, nil
}
