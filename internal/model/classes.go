package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Classes are the labels of a classifier: id2label and problem_type of config.json.
type Classes struct {
	Names   []string     // in the order of the scores
	Problem data.Problem // empty if not set, see [Classes.Means]
}

// UnnamedClasses returns n classes with the default names of transformers.
func UnnamedClasses(n int) Classes {
	c := Classes{Names: make([]string, n)}
	for i := range c.Names {
		c.Names[i] = unnamed(i)
	}
	return c
}

func unnamed(i int) string { return "LABEL_" + strconv.Itoa(i) }

// Unnamed reports whether all classes have their default names.
func (c Classes) Unnamed() bool {
	for i, name := range c.Names {
		if name != unnamed(i) {
			return false
		}
	}
	return true
}

// Means returns the problem type. If none is set, one label means regression, and several mean
// single-label classification.
func (c Classes) Means() data.Problem {
	switch {
	case c.Problem != "":
		return c.Problem
	case len(c.Names) == 1:
		return data.Regression
	}
	return data.SingleLabel
}

// maxClasses keeps a wrong number from taking all memory.
const maxClasses = 1 << 20

// Check validates the classes. Errors: ErrConfig.
func (c Classes) Check() error {
	switch n := len(c.Names); {
	case n < 1 || n > maxClasses:
		return fmt.Errorf("%w: id2label: found %d classes, expected 1 to %d", ErrConfig, n, maxClasses)
	case c.Problem != "" && !slices.Contains(data.Problems(), string(c.Problem)):
		return fmt.Errorf("%w: problem_type %q%s; supported: %q", ErrUnsupported, c.Problem, suggest.DidYouMean(string(c.Problem), data.Problems()), data.Problems())
	case n == 1 && c.Problem == data.SingleLabel:
		return fmt.Errorf("%w: problem_type: found %s of one class, expected two classes or more, or %s", ErrConfig, c.Problem, data.Regression)
	}
	seen := make(map[string]bool, len(c.Names))
	for _, name := range c.Names {
		if seen[name] {
			return fmt.Errorf("%w: id2label: found the name %q twice", ErrConfig, name)
		}
		seen[name] = true
	}
	return nil
}

// Right returns the number of correctly classified documents of a batch, given scores
// [documents, classes]. A multi-label document counts if all its labels are correct. For
// regression it returns 0.
func (c Classes) Right(b *data.Batch, scores []float32) (n int) {
	size := len(c.Names)
	for i := range b.Rows() {
		row := scores[i*size : (i+1)*size]
		switch c.Means() {
		case data.SingleLabel:
			if slices.Index(row, slices.Max(row)) == int(b.Classes()[i]) {
				n++
			}
		case data.MultiLabel:
			right := true
			for j, is := range b.Values()[i*size : (i+1)*size] {
				right = right && (row[j] > 0) == (is > 0.5)
			}
			if right {
				n++
			}
		}
	}
	return n
}

// Keys returns the equivalent keys of config.json.
func (c Classes) Keys() map[string]any {
	var label, id bytes.Buffer
	for i, name := range c.Names {
		text, _ := json.Marshal(name) // which strings always have
		comma := "{"
		if i > 0 {
			comma = ","
		}
		fmt.Fprintf(&label, `%s"%d":%s`, comma, i, text)
		fmt.Fprintf(&id, `%s%s:%d`, comma, text, i)
	}
	keys := map[string]any{"id2label": json.RawMessage(label.String() + "}"), "label2id": json.RawMessage(id.String() + "}")}
	if c.Problem != "" {
		keys["problem_type"] = c.Problem
	}
	return keys
}

// classes reads the classes of a config.json. Without names there are two, as in transformers.
func (f *Fields) classes() Classes {
	labels := read(f, "id2label", "an object of names by numbers", map[string]string(nil))
	c := Classes{Names: make([]string, len(labels))}
	if labels == nil {
		n := f.Int("num_labels", 2)
		if n < 1 || n > maxClasses {
			f.Fail("num_labels", n, fmt.Sprintf("1 to %d", maxClasses))
			return c
		}
		c = UnnamedClasses(n)
	}
	for key, name := range labels {
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(labels) || strconv.Itoa(i) != key {
			f.Fail("id2label", fmt.Sprintf("%q", key), fmt.Sprintf("numbers from 0 to %d", len(labels)-1))
			return c
		}
		c.Names[i] = name
	}
	c.Problem = data.Problem(f.String("problem_type", ""))
	if err := c.Check(); err != nil && f.err == nil {
		f.err = err
	}
	return c
}

// ClassesFile is a file next to a classifier's adapter. It holds the class names, for which
// the adapter's configuration has no key.
const ClassesFile = "classes.json"

// ReadClasses reads the file that [Classes.Save] writes. found reports whether it exists.
// Errors: ErrConfig, ErrUnsupported and errors of package os.
func ReadClasses(dir string) (c Classes, found bool, err error) {
	path := filepath.Join(dir, ClassesFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("model: %w", err)
	}
	f, err := ParseFields(raw)
	if err == nil {
		c = f.classes()
		err = f.err
	}
	if err != nil {
		return c, false, fmt.Errorf("model: %s: %w", path, err)
	}
	return c, true, nil
}

// Save writes ClassesFile into the folder dir: the keys of config.json alone.
func (c Classes) Save(dir string) error {
	text, err := json.MarshalIndent(c.Keys(), "", "  ")
	if err != nil {
		return fmt.Errorf("model: %s: %w", ClassesFile, err)
	}
	return fsatomic.WriteFile(filepath.Join(dir, ClassesFile), append(text, '\n'))
}
