package session

import (
	"strconv"

	"github.com/lorafuse/lorafuse/internal/data"
)

// partInputs holds the names of the inputs for one part of the rows of logits.
type partInputs struct {
	axis   string
	rows   string // i32 [m]: which of all rows they are
	to     string // i32 [m]: the same, or -1 for an unused row of padding
	labels string // i32 [m]: the first target of each, or -1 likewise
	places string // i32 [m·width]: of each target its logit, counted on over rows
}

var partNames = func() (all [mostParts]partInputs) {
	for i := range all {
		n := " " + strconv.Itoa(i)
		all[i] = partInputs{"logits" + n, "logit rows" + n, "logits to" + n, "logit labels" + n, "logit places" + n}
	}
	return all
}()

// inputsOf returns the input names of part i.
func inputsOf(i int) partInputs { return partNames[i] }

// feed holds the inputs of a program run: a datum as a batch of one document, and
// reusable arrays.
type feed struct {
	batch  data.Batch
	labels []int32
	parts  [mostParts]struct{ rows, to, labels, places []int32 }
	floats [len(slopeInputs)][]float32
}

// set fills the feed with a datum.
func (f *feed) set(d *Datum, l *loss, p kind, vocabulary int) {
	k := d.width()
	f.labels = f.labels[:0]
	for i := range d.Tokens {
		f.labels = append(f.labels, d.Targets[i*k])
	}
	f.batch.Reset()
	f.batch.Add(d.Tokens, f.labels)
	for i := range p.parts() {
		f.part(d, p, i, vocabulary)
	}
	for j := range f.floats {
		f.floats[j] = f.floats[j][:0]
	}
	for i := range d.Targets {
		for j, x := range l.slope(l, d, i).fields() {
			f.floats[j] = append(f.floats[j], x)
		}
	}
	for j := range p.form.fields() {
		f.batch.SetFloats(slopeInputs[j], f.floats[j])
	}
}

// part sets the rows of part i of the logits.
func (f *feed) part(d *Datum, p kind, i, vocabulary int) {
	x, in := &f.parts[i], inputsOf(i)
	x.rows, x.to, x.labels, x.places = x.rows[:0], x.to[:0], x.labels[:0], x.places[:0]
	for row := i * p.rows; row < min(len(d.Tokens), (i+1)*p.rows); row++ {
		at := len(x.rows) * vocabulary
		x.rows, x.to, x.labels = append(x.rows, int32(row)), append(x.to, int32(row)), append(x.labels, f.labels[row])
		for _, id := range d.Targets[row*p.width : (row+1)*p.width] {
			x.places = append(x.places, int32(at)+id)
		}
	}
	if len(x.rows) == 0 {
		x.rows, x.to, x.labels = append(x.rows, 0), append(x.to, -1), append(x.labels, -1)
		for range p.width {
			x.places = append(x.places, 0)
		}
	}
	f.batch.SetInts(in.rows, x.rows)
	f.batch.SetInts(in.to, x.to)
	f.batch.SetInts(in.labels, x.labels)
	f.batch.SetInts(in.places, x.places)
}

// Array implements nn.Arrays.
func (f *feed) Array(name string) ([]byte, bool) { return f.batch.Array(name) }
