package torchfile

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// checkpoint is the parsed content of a file, without its storages.
type checkpoint struct {
	format  string
	root    any // the saved object
	swapped bool
	// find returns the location of a storage's bytes, by its key.
	find    func(s *storage) (extent, error)
	archive *archive // nil for a legacy file
}

// Values of Source.Format.
const (
	formatSafetensors = "safetensors"
	formatZip         = "torch zip"
	formatLegacy      = "torch legacy"
)

// read reads everything except the storages.
func read(r io.ReaderAt, size int64) (*checkpoint, error) {
	format, err := sniff(r, size)
	if err != nil {
		return nil, err
	}
	switch format {
	case formatZip:
		return readZip(r, size)
	case formatLegacy:
		return readLegacy(r, size)
	}
	return nil, &FormatError{Rule: ErrNotTorch, Found: "a safetensors file", Expected: "it to be opened by OpenAny or safetensors.Open"}
}

const pickleRecord = "data.pkl"

// readZip reads the format of torch.save since PyTorch 1.6: an archive with one
// folder, which contains the pickle data.pkl and the storages data/0, data/1,
// ….
func readZip(r io.ReaderAt, size int64) (*checkpoint, error) {
	a, err := readArchive(r, size)
	if err != nil {
		return nil, err
	}
	root, err := a.root()
	if err != nil {
		return nil, err
	}
	c := &checkpoint{format: formatZip, archive: a}
	if err := a.checkVersion(root); err != nil {
		return nil, err
	}
	if c.swapped, err = a.bigEndian(root); err != nil {
		return nil, err
	}
	found := map[string]extent{}
	c.find = func(s *storage) (extent, error) {
		if x, ok := found[s.key]; ok {
			return x, nil
		}
		x, err := a.find(root + "data/" + s.key)
		if err == nil {
			found[s.key] = x
		}
		return x, err
	}
	x, err := a.find(root + pickleRecord)
	if err != nil {
		return nil, err
	}
	if x.size > maxPickle {
		return nil, inRecord(x.record, ErrLimit, byteCount(x.size), "at most "+strconv.Itoa(maxPickle))
	}
	in := newInput(x.open(r), x.size)
	if c.root, err = newMachine(in, storageOf).run(); err != nil {
		return nil, inPickle(x.failed(err), x.record)
	}
	if in.at != in.size {
		return nil, inRecord(x.record, ErrPickle, byteCount(in.size-in.at)+" after its end", "none")
	}
	return c, nil
}

func inPickle(err error, record string) error {
	var f *FormatError
	if errors.As(err, &f) && f.Record == "" {
		f.Record = record
	}
	return err
}

// root returns the folder of the archive, with its slash: the one with a
// data.pkl.
func (a *archive) root() (string, error) {
	var roots []string
	for i := range a.records {
		folder, ok := strings.CutSuffix(a.records[i].name, "/"+pickleRecord)
		if ok && !strings.Contains(folder, "/") {
			roots = append(roots, folder+"/")
		}
	}
	switch len(roots) {
	case 0:
		return "", inRecord("", ErrNotTorch, "a zip archive without a folder that has a "+pickleRecord, "")
	case 1:
		if _, ok := a.named[roots[0]+"constants.pkl"]; ok {
			return "", inRecord("", ErrUnsupported, "a TorchScript archive, which is a program", "what torch.save writes; in Python, torch.save(torch.jit.load(path).state_dict(), …)")
		}
		return roots[0], nil
	}
	return "", inRecord(pickleRecord, ErrZip, "it in "+strconv.Itoa(len(roots))+" folders", "in one")
}

// checkVersion rejects format versions newer than the newest known one.
func (a *archive) checkVersion(root string) error {
	const newest = 10
	record := root + "version"
	if _, ok := a.named[record]; !ok {
		return nil
	}
	text, err := a.small(record)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > newest {
		return inRecord(record, ErrUnsupported, "version "+quote(text), "1 to "+strconv.Itoa(newest))
	}
	return nil
}

func (a *archive) bigEndian(root string) (bool, error) {
	record := root + "byteorder"
	if _, ok := a.named[record]; !ok {
		return false, nil // written by PyTorch before 2.1
	}
	text, err := a.small(record)
	if err != nil {
		return false, err
	}
	if text != "little" && text != "big" {
		return false, inRecord(record, ErrUnsupported, quote(text), "little or big")
	}
	return text == "big", nil
}

// storageOf returns the storage of a persistent id ('storage', class, key,
// location, numel). In legacy files a sixth item is a view of it, (key, offset,
// numel) or None. The location is ignored.
func storageOf(id []any) (any, error) {
	const want = "('storage', class, key, location, number of elements)"
	if len(id) != 5 && len(id) != 6 || id[0] != any("storage") {
		return nil, badArguments(want, id)
	}
	class, ok := id[1].(global)
	d := storageType(class)
	key, isText := id[2].(string)
	numel, isInt := id[4].(int64)
	if !ok || d == nil || !isText || !isInt || numel < 0 {
		return nil, badArguments(want, id)
	}
	s := &storage{key: key, dtype: d, numel: numel, count: numel}
	if len(id) == 5 || id[5] == nil {
		return s, nil
	}
	view, ok := id[5].(*container)
	if !ok || view.kind != kindTuple || len(view.items) != 3 {
		return nil, badArguments("a view of a storage", id[5:])
	}
	from, isInt := view.items[1].(int64)
	count, isCount := view.items[2].(int64)
	if !isInt || !isCount || from < 0 || count < 0 || from > numel || count > numel-from {
		return nil, badArguments("a view within the storage", view.items)
	}
	s.from, s.count = from, count
	return s, nil
}
