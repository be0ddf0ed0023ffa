package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

var (
	someData    = []byte{0, 0, 128, 63, 0, 0, 0, 64}
	somePickle  = pickled(dictCode("a", tensorCode(storageCode("FloatStorage", "0", 2), 0, tuple{2}, tuple{1})))
	otherPickle = pickled(dictCode("a", tensorCode(storageCode("FloatStorage", "0", 2), 0, tuple{2}, tuple{1}), "b", tensorCode(storageCode("FloatStorage", "1", 2), 0, tuple{2}, tuple{1})))
)

func TestZip(t *testing.T) {
	pkl := entry{name: "x/data.pkl", data: somePickle}
	for name, file := range map[string][]byte{
		"stored":               zipped(pkl, entry{name: "x/data/0", data: someData}),
		"deflated":             zipped(pkl, entry{name: "x/data/0", data: someData, method: deflated}),
		"deflated pickle":      zipped(entry{name: "x/data.pkl", data: somePickle, method: deflated}, entry{name: "x/data/0", data: someData}),
		"another order":        zipped(entry{name: "x/data/0", data: someData}, pkl),
		"extra fields":         zipped(pkl, entry{name: "x/data/0", data: someData, extra: []byte("FB\x02\x00ab"), localExtra: []byte("FB\x03\x00abc")}),
		"broken extra fields":  zipped(pkl, entry{name: "x/data/0", data: someData, extra: []byte("FB\xff\x00ab"), localExtra: []byte("F")}),
		"64-bit sizes":         zipped(pkl, entry{name: "x/data/0", data: someData, size: u32(1<<32 - 1), compressed: u32(1<<32 - 1), extra: []byte("\x01\x00\x10\x00\x08\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00"), localSize: u32(1<<32 - 1)}),
		"64-bit header of 0":   zipped(entry{name: "x/data.pkl", data: somePickle, header: u32(1<<32 - 1), extra: []byte("\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00")}, entry{name: "x/data/0", data: someData}),
		"sizes after the data": zipped(pkl, entry{name: "x/data/0", data: someData, flags: descriptor, localSize: u32(0)}),
		"disk of 64 bits":      zipped(pkl, entry{name: "x/data/0", data: someData, disk: 0xffff}),
		"wrong checksum":       zipped(pkl, entry{name: "x/data/0", data: someData, crc: u32(7)}),
		"unused, encrypted":    zipped(pkl, entry{name: "x/data/0", data: someData}, entry{name: "x/other", flags: encrypted}),
		"version":              zipped(pkl, entry{name: "x/data/0", data: someData}, entry{name: "x/version", data: []byte("3\n")}),
		"first version":        zipped(pkl, entry{name: "x/data/0", data: someData}, entry{name: "x/version", data: []byte("1")}),
		"newest version":       zipped(pkl, entry{name: "x/data/0", data: someData}, entry{name: "x/version", data: []byte("10\n")}),
		"nameless record":      zipped(pkl, entry{name: "x/data/0", data: someData}, entry{}),
		"folder":               zipped(entry{name: "x/"}, pkl, entry{name: "x/data/0", data: someData}),
		"another data.pkl":     zipped(pkl, entry{name: "x/code/data.pkl"}, entry{name: "data.pkl"}, entry{name: "x/data/0", data: someData}),
	} {
		tensors, err := openBytes(file)
		require.NoError(t, err, name)
		require.Len(t, tensors, 1, name)
		require.Equal(t, someData, tensors[0].bytes(t), name)
	}
}

// edit changes bytes of an archive, counted from the end where at is negative.
func edit(file []byte, at int, to ...byte) []byte {
	file = bytes.Clone(file)
	if at < 0 {
		at += len(file)
	}
	copy(file[at:], to)
	return file
}

func TestBadZips(t *testing.T) {
	pkl := entry{name: "x/data.pkl", data: somePickle}
	data := func(change func(e *entry)) []byte {
		e := entry{name: "x/data/0", data: someData}
		change(&e)
		return zipped(pkl, e)
	}
	good := data(func(*entry) {})
	locator := func(at uint64, end []byte) []byte { // a 64-bit end before the other one
		file := append(bytes.Clone(good[:len(good)-sizeEnd]), end...)
		file = append(file, "PK\x06\x07\x00\x00\x00\x00"...)
		file = append(le.AppendUint64(file, at), 1, 0, 0, 0)
		return append(file, good[len(good)-sizeEnd:]...)
	}
	end64 := func(count, size, at uint64, disk byte) []byte {
		b := append([]byte("PK\x06\x06"), make([]byte, 12)...)
		b = append(b, disk, 0, 0, 0, 0, 0, 0, 0)
		b = le.AppendUint64(le.AppendUint64(b, count), count)
		return le.AppendUint64(le.AppendUint64(b, size), at)
	}
	goodSize, goodAt := uint64(le.Uint32(good[len(good)-10:])), uint64(le.Uint32(good[len(good)-6:]))
	at64 := uint64(len(good) - sizeEnd)
	_, err := openBytes(locator(at64, end64(2, goodSize, goodAt, 0)))
	require.NoError(t, err, "the good one")

	big := make([]byte, 2<<20)
	for name, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"only a beginning":          {[]byte("PK\x03\x04"), ErrTruncated, "no end of the zip archive"},
		"cut":                       {good[:len(good)-1], ErrTruncated, ""},
		"bytes behind":              {append(bytes.Clone(good), 0), ErrTruncated, ""},
		"zip64 end before all":      {[]byte("PK\x03\x04PK\x05\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), ErrNotTorch, ""},
		"two disks":                 {edit(good, -18, 1), ErrZip, "several files"},
		"directory on another disk": {edit(good, -16, 1), ErrZip, "several files"},
		"directory past the end":    {edit(good, -6, 0xff, 0xff, 0xff, 0x7f), ErrZip, "bytes 2147483647"},
		"directory too long":        {edit(good, -10, 0xff, 0xff, 0xff, 0x7f), ErrZip, "at most"},
		"directory too short":       {edit(good, -10, byte(goodSize-1), byte((goodSize-1)>>8)), ErrZip, "goes past the end"},
		"directory elsewhere":       {edit(good, -6, byte(goodAt-1), byte((goodAt-1)>>8)), ErrZip, "expected an entry"},
		"fewer entries":             {edit(good, -12, 1), ErrZip, "2 entries, expected 1"},
		"many entries":              {edit(good, -12, 0xfe, 0xff), ErrZip, "65534 entries"},
		"64-bit end elsewhere":      {locator(at64+1, end64(2, goodSize, goodAt, 0)), ErrZip, "its end at"},
		"64-bit end far":            {locator(1<<63, end64(2, goodSize, goodAt, 0)), ErrZip, "its end at"},
		"64-bit end not there":      {locator(at64-1, end64(2, goodSize, goodAt, 0)), ErrZip, "no end where"},
		"64-bit end, two disks":     {locator(at64, end64(2, goodSize, goodAt, 1)), ErrZip, "several files"},
		"64-bit end differs":        {locator(at64, end64(3, goodSize, goodAt, 0)), ErrZip, "the same in both ends"},
		"64-bit size differs":       {locator(at64, end64(2, goodSize+1, goodAt, 0)), ErrZip, "the same in both ends"},
		"record twice":              {zipped(pkl, entry{name: "x/data/0", data: someData}, entry{name: "x/data/0", data: someData}), ErrZip, "it twice"},
		"in another file":           {data(func(e *entry) { e.disk = 1 }), ErrZip, "in another file"},
		"encrypted":                 {data(func(e *entry) { e.flags = encrypted }), ErrUnsupported, "encrypted"},
		"method":                    {data(func(e *entry) { e.method = 14 }), ErrUnsupported, "method 14"},
		"stored, other size":        {data(func(e *entry) { e.size = u32(7) }), ErrZip, "8 bytes, expected 7"},
		"longer than there is":      {data(func(e *entry) { e.size, e.compressed = u32(1<<30), u32(1<<30) }), ErrZip, "to end before"},
		"size of 4 GB":              {data(func(e *entry) { e.size, e.compressed = u32(1<<32-2), u32(1<<32-2) }), ErrZip, "to end before"},
		"64-bit size missing":       {data(func(e *entry) { e.size = u32(1<<32 - 1) }), ErrZip, "no 64-bit sizes"},
		"64-bit size cut":           {data(func(e *entry) { e.size, e.extra = u32(1<<32-1), []byte("\x01\x00\x04\x00\x08\x00\x00\x00") }), ErrZip, "no 64-bit sizes"},
		"64-bit size negative": {data(func(e *entry) {
			e.size, e.extra = u32(1<<32-1), []byte("\x01\x00\x08\x00\x08\x00\x00\x00\x00\x00\x00\x80")
		}), ErrZip, "more than 2^63"},
		"64-bit header far": {data(func(e *entry) {
			e.header, e.extra = u32(1<<32-1), []byte("\x01\x00\x08\x00\xff\xff\xff\xff\xff\xff\xff\x7f")
		}), ErrZip, "to end before"},
		"header in the other":       {data(func(e *entry) { e.header = u32(0) }), ErrZip, "to end before"},
		"header in the pickle":      {data(func(e *entry) { e.header = u32(60) }), ErrZip, "to end before"},
		"header in the directory":   {data(func(e *entry) { e.header = u32(uint32(goodAt)) }), ErrZip, "to end before"},
		"no header":                 {data(func(e *entry) { e.localSignature = []byte("PK\x03\x05") }), ErrZip, "no record where"},
		"another name":              {data(func(e *entry) { e.localName = "x/data/1" }), ErrZip, "another name"},
		"a longer name":             {data(func(e *entry) { e.localName = "x/data/00" }), ErrZip, "another name"},
		"another method":            {data(func(e *entry) { e.localMethod = new(uint16); *e.localMethod = deflated }), ErrZip, "another method"},
		"another size":              {data(func(e *entry) { e.localSize = u32(9) }), ErrZip, "9 bytes in the record"},
		"bomb":                      {data(func(e *entry) { e.method, e.size = deflated, u32(1<<30) }), ErrZip, "claim to inflate"},
		"no data.pkl":               {zipped(entry{name: "x/other"}), ErrNotTorch, "without a folder"},
		"two folders":               {zipped(pkl, entry{name: "y/data.pkl", data: somePickle}), ErrZip, "in 2 folders"},
		"program":                   {zipped(pkl, entry{name: "x/constants.pkl"}), ErrUnsupported, "TorchScript"},
		"version of nothing":        {zipped(pkl, entry{name: "x/version", data: []byte("0")}), ErrUnsupported, "1 to 10"},
		"version of tomorrow":       {zipped(pkl, entry{name: "x/version", data: []byte("11")}), ErrUnsupported, "1 to 10"},
		"version of text":           {zipped(pkl, entry{name: "x/version", data: []byte("three")}), ErrUnsupported, "three"},
		"version of 64 digits":      {zipped(pkl, entry{name: "x/version", data: bytes.Repeat([]byte("3"), 64)}), ErrUnsupported, "1 to 10"},
		"version of length":         {zipped(pkl, entry{name: "x/version", data: bytes.Repeat([]byte("3"), 65)}), ErrZip, "65 bytes"},
		"version encrypted":         {zipped(pkl, entry{name: "x/version", flags: encrypted}), ErrUnsupported, "encrypted"},
		"version that is cut":       {zipped(pkl, entry{name: "x/version", data: []byte("333333"), method: deflated, size: u32(7), localSize: u32(7)}), ErrZip, "fewer bytes"},
		"byte order encrypted":      {zipped(pkl, entry{name: "x/byteorder", flags: encrypted}), ErrUnsupported, "encrypted"},
		"byte order of nothing":     {zipped(pkl, entry{name: "x/byteorder"}), ErrUnsupported, `""`},
		"pickle encrypted":          {zipped(entry{name: "x/data.pkl", flags: encrypted}), ErrUnsupported, "encrypted"},
		"pickle that goes on":       {zipped(entry{name: "x/data.pkl", data: append(bytes.Clone(somePickle), 1)}), ErrPickle, "1 bytes after its end"},
		"pickle that is cut":        {zipped(entry{name: "x/data.pkl", data: somePickle[:20]}), ErrTruncated, "x/data.pkl"},
		"pickle, cut when deflated": {zipped(entry{name: "x/data.pkl", data: somePickle[:20], method: deflated, size: u32(uint32(len(somePickle))), localSize: u32(uint32(len(somePickle)))}), ErrTruncated, "x/data.pkl"},
		"long pickle":               {zipped(entry{name: "x/data.pkl", data: big, method: deflated, size: u32(1), compressed: u32(1)}), ErrZip, ""},
		"no storage":                {zipped(pkl), ErrRecord, "x/data/0"},
	} {
		_, err := openBytes(c.file)
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.says, name)
		var format *FormatError
		require.True(t, errors.As(err, &format), name)
	}
}

// A pickle or directory that is too long is refused before it is read.
func TestLongRecords(t *testing.T) {
	noise := make([]byte, 200_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	long := entry{name: "x/data.pkl", data: noise, method: deflated, size: u32(maxPickle + 1), localSize: u32(maxPickle + 1)}
	_, err := openBytes(zipped(long))
	require.ErrorIs(t, err, ErrLimit)

	size := int64(3 * maxPickle)
	end := append([]byte("PK\x05\x06\x00\x00\x00\x00"), 1, 0, 1, 0)
	end = append(le.AppendUint32(le.AppendUint32(end, maxPickle+1), 4), 0, 0)
	_, err = readArchive(sparse{size: size, parts: map[int64][]byte{0: []byte("PK\x03\x04"), size - sizeEnd: end}}, size)
	require.ErrorIs(t, err, ErrLimit)
}

// sparse is a large file of zeros with some parts.
type sparse struct {
	size  int64
	parts map[int64][]byte
	read  *int64 // counts bytes, if set
}

func (s sparse) ReadAt(p []byte, off int64) (n int, err error) {
	want := p[:max(0, min(int64(len(p)), s.size-off))]
	clear(want)
	for at, part := range s.parts {
		from, to := max(off, at), min(off+int64(len(want)), at+int64(len(part)))
		if from < to {
			copy(want[from-off:to-off], part[from-at:])
		}
	}
	if s.read != nil {
		*s.read += int64(len(want))
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// Storages and archives may be larger than 4 GiB.
func TestLargerThan4GiB(t *testing.T) {
	const numel = 5 << 28 // of 5 GiB
	pickle := pickled(dictCode("a", tensorCode(storageCode("FloatStorage", "0", numel), numel-2, tuple{2}, tuple{1}), "b", tensorCode(storageCode("FloatStorage", "1", 2), 0, tuple{2}, tuple{1})))
	wide := func(n ...uint64) []byte {
		b := le.AppendUint16(le.AppendUint16(nil, 1), uint16(8*len(n)))
		for _, n := range n {
			b = le.AppendUint64(b, n)
		}
		return b
	}
	none := u32(1<<32 - 1)
	small := zipped(entry{name: "x/data.pkl", data: pickle},
		entry{name: "x/data/0", size: none, compressed: none, flags: descriptor, extra: wide(4*numel, 4*numel)})
	// The archive as it would be with the data of the first storage in it: what
	// comes after it moves.
	first := int64(bytes.Index(small, []byte("PK\x01\x02")))
	at := first + 4*numel
	second := zipped(entry{name: "x/data/1", data: someData})
	header := int64(bytes.Index(second, []byte("PK\x01\x02")))
	directory := small[first : len(small)-sizeEnd]
	last := bytes.Clone(second[header : len(second)-sizeEnd])
	le.PutUint32(last[42:], 1<<32-1)
	le.PutUint16(last[30:], 12)
	directory = append(append(bytes.Clone(directory), last...), wide(uint64(at))...)
	end := append([]byte("PK\x06\x06"), make([]byte, 20)...)
	for _, n := range []int64{3, 3, int64(len(directory)), at + header} {
		end = le.AppendUint64(end, uint64(n))
	}
	end = append(le.AppendUint64(append(end, "PK\x06\x07\x00\x00\x00\x00"...), uint64(at+header+int64(len(directory)))), 1, 0, 0, 0)
	end = append(end, "PK\x05\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"...)
	file := sparse{parts: map[int64][]byte{0: small[:first], at - 8: someData, at: second[:header], at + header: append(directory, end...)}}
	file.size = at + header + int64(len(directory)+len(end))

	c, err := read(file, file.size)
	require.NoError(t, err)
	tensors, err := c.layout()
	require.NoError(t, err)
	require.Len(t, tensors, 2)
	for _, p := range tensors {
		require.True(t, p.inPlace)
		b := make([]byte, 8)
		_, err := file.ReadAt(b, p.offset)
		require.NoError(t, err)
		require.Equal(t, someData, b, p.name)
	}
	require.Greater(t, tensors[0].offset, int64(5<<30-9))
}

func TestVerifyRecords(t *testing.T) {
	pkl := entry{name: "x/data.pkl", data: somePickle}
	for name, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"good":     {zipped(pkl, entry{name: "x/data/0", data: someData, method: deflated}), nil, ""},
		"checksum": {zipped(pkl, entry{name: "x/data/0", data: someData, crc: u32(7)}), ErrChecksum, "expected 0x7"},
		"longer":   {zipped(pkl, entry{name: "x/data/0", data: append(bytes.Clone(someData), 1, 2), method: deflated, size: u32(8), localSize: u32(8)}), ErrZip, "9 bytes, expected 8"},
		"shorter":  {zipped(pkl, entry{name: "x/data/0", data: someData[:7], method: deflated, size: u32(8), localSize: u32(8)}), ErrZip, "7 bytes, expected 8"},
		"method":   {zipped(pkl, entry{name: "x/data/0", data: someData}, entry{name: "x/z", method: 12}), ErrUnsupported, "x/z"},
	} {
		a, err := readArchive(bytes.NewReader(c.file), int64(len(c.file)))
		require.NoError(t, err, name)
		for i := range a.records {
			if err = a.verify(i); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, c.want, name)
		if c.want != nil {
			require.ErrorContains(t, err, c.says, name)
		}
	}
}

// Deflated bytes that are broken are found when they are read.
func TestBrokenDeflate(t *testing.T) {
	many := bytes.Repeat([]byte("0123456789abcdef"), 100)
	pickle := pickled(dictCode("a", tensorCode(storageCode("ByteStorage", "0", 1600), 0, tuple{1600}, tuple{1}), "t", tensorCode(storageCode("ByteStorage", "0", 1600), 0, tuple{40, 40}, tuple{1, 40})))
	file := zipped(entry{name: "x/data.pkl", data: pickle}, entry{name: "x/data/0", data: many, method: deflated})
	packed := bytes.Index(file, deflate(many))
	broken := edit(file, packed+2, 0xff, 0xff, 0xff, 0xff)
	tensors, err := openBytes(broken)
	require.NoError(t, err)
	for _, l := range tensors {
		_, err := l.ReadAt(make([]byte, 1600), 0)
		require.ErrorIs(t, err, ErrZip, l.name)
		require.ErrorContains(t, err, "corrupt", l.name)
	}
	a, err := readArchive(bytes.NewReader(broken), int64(len(broken)))
	require.NoError(t, err)
	require.ErrorIs(t, a.verify(1), ErrZip)

	short := zipped(entry{name: "x/data.pkl", data: pickle}, entry{name: "x/data/0", data: many[:1000], method: deflated, size: u32(1600), localSize: u32(1600)})
	tensors, err = openBytes(short)
	require.NoError(t, err)
	for _, l := range tensors {
		_, err := l.ReadAt(make([]byte, 1600), 0)
		require.ErrorIs(t, err, ErrZip, l.name)
		require.ErrorContains(t, err, "fewer bytes", l.name)
	}
}

// A disk that fails is not the file's fault.
func TestReadErrors(t *testing.T) {
	wrong := errors.New("disk on fire")
	for _, file := range [][]byte{archived(somePickle, someData), legacyFile(somePickle, []string{"0"}, someData)} {
		for after := range len(file) {
			r := failing{bytes.NewReader(file), int64(after), wrong}
			c, err := read(r, int64(len(file)))
			if err == nil {
				_, err = c.layout()
			}
			if err != nil {
				require.ErrorIs(t, err, wrong)
			}
		}
		_, err := read(failing{bytes.NewReader(file), 0, io.EOF}, int64(len(file)))
		require.ErrorIs(t, err, ErrTruncated)
	}
	_, err := readSize(iotest.ErrReader(wrong), 5)
	require.ErrorIs(t, err, wrong)
	b, err := readSize(iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 3<<20))), 3<<20)
	require.NoError(t, err)
	require.Len(t, b, 3<<20)
}

// failing fails from a place on.
type failing struct {
	io.ReaderAt
	from int64
	err  error
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.from {
		return f.ReaderAt.ReadAt(p, off)
	}
	return 0, f.err
}

// What the standard library writes is read, and the other way round.
func TestAgainstStandardLibrary(t *testing.T) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, data := range map[string][]byte{"r/data.pkl": somePickle, "r/data/0": someData} {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, w.SetComment("a comment"))
	require.NoError(t, w.Close())
	tensors, err := openBytes(b.Bytes())
	require.NoError(t, err)
	require.Equal(t, someData, tensors[0].bytes(t))

	file := archived(somePickle, someData)
	r, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	require.Len(t, r.File, 2)

	// Why its reader is not used here: it takes records that are called one thing
	// in the directory and another where they lie, and records in one another.
	for _, e := range []entry{{name: "x/data/0", data: someData, localName: "x/data/1"}, {name: "x/data/0", data: someData, header: u32(0)}} {
		file := zipped(entry{name: "x/data.pkl", data: somePickle}, e)
		r, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
		require.NoError(t, err)
		f, err := r.File[1].OpenRaw()
		require.NoError(t, err)
		_, err = io.ReadAll(f)
		require.NoError(t, err)
		_, err = openBytes(file)
		require.ErrorIs(t, err, ErrZip)
	}
}
