package data

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// maxClasses is the maximum number of classes taken from rows. Real label sets have fewer, and a mistaken id does not
// exhaust memory.
const maxClasses = 1 << 16

// rowLabels holds the labels of the rows of a dataset.
type rowLabels struct {
	classes []string  // in order of their ids; nil for Regression
	ids     []int32   // class ids of all rows
	starts  []int     // for MultiLabel: row r has the classes ids[starts[r]:starts[r+1]]
	values  []float32 // for Regression: of each row
}

// add appends the label of a row to a batch.
func (l *rowLabels) add(b *Batch, row int) {
	if l.values == nil && l.starts == nil {
		b.extend(classesArray, 1)[0] = l.ids[row]
		return
	}
	a := b.named(valuesArray)
	if l.values != nil {
		a.Floats = append(a.Floats, l.values[row])
		return
	}
	from := len(a.Floats)
	a.Floats = slices.Grow(a.Floats, len(l.classes))[:from+len(l.classes)]
	clear(a.Floats[from:])
	for _, id := range l.ids[l.starts[row]:l.starts[row+1]] {
		a.Floats[from+int(id)] = 1
	}
}

// append appends the labels to buf for a digest.
func (l *rowLabels) append(buf []byte) []byte {
	for _, name := range l.classes {
		buf = append(binary.LittleEndian.AppendUint64(buf, uint64(len(name))), name...)
	}
	for _, start := range l.starts {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(start))
	}
	for _, id := range l.ids {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
	}
	for _, v := range l.values {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
	}
	return buf
}

// checkClasses returns an error for empty or duplicate class names.
func (o Options) checkClasses() error {
	fail := func(format string, args ...any) error {
		return problem(ErrOption, "classes: "+format, args...)
	}
	if len(o.Classes) > 0 && o.Problem == Regression {
		return fail("found %d names, expected none with the problem %s", len(o.Classes), Regression)
	}
	seen := map[string]bool{}
	for _, name := range o.Classes {
		switch {
		case name == "":
			return fail("found an empty name")
		case seen[name]:
			return fail("found %q twice", name)
		}
		seen[name] = true
	}
	return nil
}

// convertLabels converts the labels of rows, at least one, to numbers.
func convertLabels(rows []*label, o Options) (*rowLabels, error) {
	kind, err := commonForm(rows)
	if err != nil {
		return nil, err
	}
	l := &rowLabels{classes: slices.Clone(o.Classes)}
	if o.Problem == Regression {
		for _, r := range rows {
			l.values = append(l.values, float32(r.numbers[0]))
		}
		return l, nil
	}
	flags := o.Problem == MultiLabel && areFlags(rows, kind, len(l.classes))
	if l.classes == nil {
		if l.classes, err = collect(rows, o.Problem, flags); err != nil {
			return nil, err
		}
	}
	byName := map[string]int32{}
	for id, name := range l.classes {
		byName[name] = int32(id)
	}
	if o.Problem == MultiLabel {
		l.starts = make([]int, 1, len(rows)+1)
	}
	for _, r := range rows {
		var ids []int32
		if flags {
			ids, err = r.flagged(len(l.classes))
		} else {
			ids, err = r.classes(l.classes, byName)
		}
		if err != nil {
			return nil, r.place.wrap(err)
		}
		l.ids = append(l.ids, ids...)
		if l.starts != nil {
			l.starts = append(l.starts, len(l.ids))
		}
	}
	return l, nil
}

// commonForm returns the form of all non-empty labels, or an error if they differ.
func commonForm(rows []*label) (form, error) {
	var first *label
	for _, r := range rows {
		switch {
		case r.form == "":
		case first == nil:
			first = r
		case r.form == flagForm && first.form == idForm: // its labels are the ids 0 and 1
			first = r
		case r.form != first.form && (r.form != idForm || first.form != flagForm):
			return "", r.place.wrap(problem(ErrMixed, "label: found %s, expected %s as in %s", r.form, first.form, first.place))
		}
	}
	if first == nil {
		return "", nil
	}
	return first.form, nil
}

// areFlags reports whether lists of numbers hold 0 or 1 for each class instead of ids. All must have one number per
// class, and at least two if the number of classes is not given.
func areFlags(rows []*label, kind form, classes int) bool {
	if kind != idForm {
		return kind == flagForm
	}
	if classes == 0 {
		if classes = len(rows[0].numbers); classes < 2 {
			return false
		}
	}
	for _, r := range rows {
		other := func(v float64) bool { return v != 0 && v != 1 }
		if len(r.numbers) != classes || slices.ContainsFunc(r.numbers, other) {
			return false
		}
	}
	return true
}

// collect derives the class names from the rows.
func collect(rows []*label, p Problem, flags bool) ([]string, error) {
	names, most := map[string]bool{}, -1
	for _, r := range rows {
		for _, name := range r.names {
			names[name] = true
		}
		if flags {
			most = max(most, len(r.numbers)-1)
			continue
		}
		for _, v := range r.numbers {
			switch {
			case v >= maxClasses:
				return nil, r.place.wrap(problem(ErrLabel, "label: found the id %s, expected less than %d", plain(v), maxClasses))
			case v >= 0:
				most = max(most, int(v))
			}
		}
	}
	classes := slices.Sorted(maps.Keys(names))
	for id := range most + 1 {
		classes = append(classes, strconv.Itoa(id))
	}
	fewest := 1
	if p == SingleLabel {
		fewest = 2
	}
	if n := len(classes); n < fewest || n > maxClasses {
		return nil, at(rows[0].place.file, 0, problem(ErrLabel, "label: found %d classes in all rows, expected %d to %d", n, fewest, maxClasses))
	}
	return classes, nil
}

// classes returns the class ids of a row.
func (l *label) classes(known []string, byName map[string]int32) ([]int32, error) {
	var ids []int32
	for _, name := range l.names {
		id, ok := byName[name]
		if !ok {
			return nil, problem(ErrLabel, "label: found %q, expected %s%s", shorten(name), oneOfClasses(known), suggest.DidYouMean(name, known))
		}
		ids = append(ids, id)
	}
	for _, v := range l.numbers {
		if v < 0 || v >= float64(len(known)) {
			return nil, problem(ErrLabel, "label: found the id %s, expected 0 to %d, as there are %d classes", plain(v), len(known)-1, len(known))
		}
		ids = append(ids, int32(v))
	}
	slices.Sort(ids)
	for i := 1; i < len(ids); i++ {
		if id := ids[i]; id == ids[i-1] {
			return nil, problem(ErrLabel, "label: found the class %q twice (lists of 0 or 1 for each class have %d elements in all rows)", shorten(known[id]), len(known))
		}
	}
	return ids, nil
}

// flagged returns the ids of the classes whose flag is 1; an empty list has none.
func (l *label) flagged(classes int) ([]int32, error) {
	if len(l.numbers) != classes && len(l.numbers) > 0 {
		return nil, problem(ErrLabel, "label: found a list of %d numbers, expected 0 or 1 for each of %d classes", len(l.numbers), classes)
	}
	var ids []int32
	for i, v := range l.numbers {
		switch v {
		case 0:
		case 1:
			ids = append(ids, int32(i))
		default:
			return nil, problem(ErrLabel, "label[%d]: found %s, expected 0 or 1", i, plain(v))
		}
	}
	return ids, nil
}

// oneOfClasses lists the class names for an error message, or their number if there are many.
func oneOfClasses(known []string) string {
	const most = 8
	if len(known) > most {
		return fmt.Sprintf("one of %d classes", len(known))
	}
	quoted := make([]string, len(known))
	for i, name := range known {
		quoted[i] = strconv.Quote(shorten(name))
	}
	return suggest.Or(quoted)
}

// plain formats a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
