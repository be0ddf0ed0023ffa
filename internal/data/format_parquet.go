package data

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// parquetFile is Apache Parquet, with any of its compressions.
var parquetFile = fileFormat{name: FormatParquet, endings: []string{".parquet"}, rows: readParquet}

// parquetMagic begins and ends a Parquet file.
const parquetMagic = "PAR1"

// parquetBatch is the number of rows that are read at once.
const parquetBatch = 64

// readParquet reads the rows of a file, whose columns become the keys of objects.
func readParquet(in *input, put func(object []byte, number int) error) (err error) {
	r, size, err := in.random()
	if err != nil {
		return err
	}
	defer func() { // the library panics on some damaged files
		if p := recover(); p != nil {
			err = problem(ErrFormat, "not a valid Parquet file: %v", p)
		}
	}()
	var tail [4 + len(parquetMagic)]byte // the length of the index before it, for which the library allocates memory
	if _, err := r.ReadAt(tail[:], max(0, size-int64(len(tail)))); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("data: %w", err)
	}
	if string(tail[4:]) != parquetMagic {
		return problem(ErrFormat, "the Parquet file ends without its index: it is truncated")
	}
	if n, most := int64(binary.LittleEndian.Uint32(tail[:])), size-int64(len(parquetMagic)+len(tail)); n > most {
		return problem(ErrFormat, "not a valid Parquet file: found an index of %d bytes, expected at most %d", n, most)
	}
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return parquetError(err)
	}
	number := 0
	for _, group := range f.RowGroups() {
		rows := group.Rows()
		err := eachParquetRow(rows, f.Root(), func(object []byte) error {
			number++
			return put(object, number)
		})
		if closed := rows.Close(); err == nil && closed != nil {
			err = parquetError(closed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachParquetRow calls put with the object of each row.
func eachParquetRow(rows parquet.Rows, root *parquet.Column, put func(object []byte) error) error {
	batch := make([]parquet.Row, parquetBatch)
	for {
		n, err := rows.ReadRows(batch)
		for _, row := range batch[:n] {
			a := assembler{columns: map[int][]parquet.Value{}}
			row.Range(func(column int, values []parquet.Value) bool {
				a.columns[column] = values
				return true
			})
			if a.object(root, 0, 0, true); a.err != nil {
				return a.err
			}
			if err := put(a.out); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return parquetError(err)
		case n == 0:
			return problem(ErrFormat, "not a valid Parquet file: a row group ends too early")
		}
	}
}

// parquetError returns an error of the library.
func parquetError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return problem(ErrFormat, "the Parquet file ends too early: it is truncated or damaged")
	}
	return problem(ErrFormat, "not a valid Parquet file: %s", strings.ReplaceAll(err.Error(), "\n", " "))
}

// assembler writes the values of a row as JSON. It follows the definition and repetition levels of the values
// (Melnik et al., "Dremel", 2010).
type assembler struct {
	columns map[int][]parquet.Value // remaining values of each leaf
	out     []byte
	err     error
}

// leaf returns the index of the first leaf of a column.
func leaf(c *parquet.Column) int {
	for !c.Leaf() {
		inner := c.Columns()
		if len(inner) == 0 {
			return -1
		}
		c = inner[0]
	}
	return c.Index()
}

// next returns the next value of a column's first leaf. ok is false if none is left.
func (a *assembler) next(c *parquet.Column) (v parquet.Value, ok bool) {
	values := a.columns[leaf(c)]
	if len(values) == 0 {
		return v, false
	}
	return values[0], true
}

// skip removes one value of each leaf of a column.
func (a *assembler) skip(c *parquet.Column) {
	if c.Leaf() {
		if rest := a.columns[c.Index()]; len(rest) > 0 {
			a.columns[c.Index()] = rest[1:]
		}
		return
	}
	for _, inner := range c.Columns() {
		a.skip(inner)
	}
}

// value writes the value of a column: null, a list, an object or a leaf. repeats and defined are the levels of the
// column that contains it.
func (a *assembler) value(c *parquet.Column, repeats, defined int) {
	v, ok := a.next(c)
	switch {
	case a.err != nil:
	case !ok:
		a.err = problem(ErrFormat, "not a valid Parquet file: column %s has too few values", c.Name())
	case c.Optional() && v.DefinitionLevel() <= defined:
		a.skip(c)
		a.out = append(a.out, "null"...)
	case c.Optional():
		a.content(c, repeats, defined+1)
	case c.Repeated():
		a.list(c, repeats, defined, func() { a.content(c, repeats+1, defined+1) })
	default:
		a.content(c, repeats, defined)
	}
}

// list writes the elements of a repeated column.
func (a *assembler) list(c *parquet.Column, repeats, defined int, element func()) {
	a.out = append(a.out, '[')
	if v, ok := a.next(c); !ok || v.DefinitionLevel() <= defined {
		a.skip(c)
	} else {
		for first := true; a.err == nil; first = false {
			if v, ok := a.next(c); !first && (!ok || v.RepetitionLevel() != repeats+1) {
				break
			}
			if !first {
				a.out = append(a.out, ',')
			}
			before := len(a.columns[leaf(c)])
			if element(); len(a.columns[leaf(c)]) == before && a.err == nil {
				a.err = problem(ErrFormat, "not a valid Parquet file: column %s has an element without values", c.Name())
			}
		}
	}
	a.out = append(a.out, ']')
}

// content writes the value of a column that is not null.
func (a *assembler) content(c *parquet.Column, repeats, defined int) {
	if c.Leaf() {
		v, _ := a.next(c)
		a.skip(c)
		a.leafValue(c, v)
		return
	}
	inner := c.Columns()
	if _, list := annotation(c).(*format.ListType); list && len(inner) == 1 && inner[0].Repeated() {
		items := inner[0]
		a.list(items, repeats, defined, func() {
			if parts := items.Columns(); !items.Leaf() && len(parts) == 1 && items.Name() != "array" && !strings.HasSuffix(items.Name(), "_tuple") {
				a.value(parts[0], repeats+1, defined+1)
				return
			}
			a.content(items, repeats+1, defined+1)
		})
		return
	}
	a.object(c, repeats, defined, false)
}

// annotation returns the logical type of a column, or nil.
func annotation(c *parquet.Column) format.LogicalTypeValue {
	if t := c.Type().LogicalType(); t != nil {
		return t.Value
	}
	return nil
}

// object writes a group. Within a row, fields that are null are left out: a file has the fields of all rows in each,
// such as the calls of a message that makes none.
func (a *assembler) object(c *parquet.Column, repeats, defined int, whole bool) {
	a.out = append(a.out, '{')
	first := true
	for _, inner := range c.Columns() {
		if v, ok := a.next(inner); !whole && inner.Name() != "content" && inner.Optional() && ok && v.DefinitionLevel() <= defined {
			a.skip(inner)
			continue
		}
		if !first {
			a.out = append(a.out, ',')
		}
		first = false
		a.out = append(append(a.out, quoted(inner.Name())...), ':')
		a.value(inner, repeats, defined)
	}
	a.out = append(a.out, '}')
}

// leafValue writes a value. Bytes that are no text become an object, so that they are never mistaken for one.
func (a *assembler) leafValue(c *parquet.Column, v parquet.Value) {
	if _, decimal := annotation(c).(*format.DecimalType); decimal {
		a.out = fmt.Appendf(a.out, `{"decimal":%s}`, quoted(v.String()))
		return
	}
	switch v.Kind() {
	case parquet.Boolean:
		a.out = strconv.AppendBool(a.out, v.Boolean())
	case parquet.Int32:
		a.out = strconv.AppendInt(a.out, int64(v.Int32()), 10)
	case parquet.Int64:
		a.out = strconv.AppendInt(a.out, v.Int64(), 10)
	case parquet.Float:
		a.number(float64(v.Float()), 32)
	case parquet.Double:
		a.number(v.Double(), 64)
	case parquet.ByteArray, parquet.FixedLenByteArray:
		raw := v.ByteArray()
		_, text := annotation(c).(*format.StringType)
		switch {
		case text:
			if err := checkUTF8(raw); err != nil {
				a.err = within(fmt.Sprintf("column %q", c.Name()), err)
				return
			}
			a.out = append(a.out, quoted(string(raw))...)
		case utf8.Valid(raw):
			a.out = append(a.out, quoted(string(raw))...)
		default:
			a.out = fmt.Appendf(a.out, `{"bytes":"%s"}`, base64.StdEncoding.EncodeToString(raw))
		}
	default:
		a.out = append(a.out, quoted(v.String())...)
	}
}

// number writes a floating-point number, with a point even if it is an integer. JSON has no others than finite ones.
func (a *assembler) number(x float64, bits int) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		a.out = append(a.out, quoted(strconv.FormatFloat(x, 'g', -1, bits))...)
		return
	}
	text := strconv.FormatFloat(x, 'g', -1, bits)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	a.out = append(a.out, text...)
}
