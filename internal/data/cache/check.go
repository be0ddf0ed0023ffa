package cache

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/safetensors/torchfile"
)

// Report is the result of Check.
type Report struct {
	// Text, Images and Controls count the valid entries of the samples. Text includes entries of the empty prompt.
	Text, Images, Controls int
	// Missing is the number of entries that are not built yet.
	Missing int
	// Unkeyed is the number of valid entries written by other programs. It is unknown whether they match their sources.
	Unkeyed int
	// Findings lists the unusable entries, sorted by path.
	Findings []Finding
}

// Finding is an unusable entry.
type Finding struct {
	Entry string
	// Err is the reason. It wraps ErrStale, ErrCorrupt or ErrOrphan, or is the error of reading the entry or its
	// source.
	Err error
}

// Check reads the whole cache and compares it with the samples, without changing it. If the options of Open name no
// recipe, any recipe is valid, but entries of a folder that differ from the majority are stale. An entry without a key
// is stale if its source is newer by more than two seconds.
//
// progress, which may be nil, is called after each entry. Check fails if a folder cannot be read, and when ctx ends.
func (c *Cache) Check(ctx context.Context, samples []Sample, progress func(done, total int)) (*Report, error) {
	r := &Report{}
	recipes := map[string]map[string][]string{} // folder → recipe → entries
	slots := c.expected(samples)
	for i, s := range slots {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		recipe, err := c.checkEntry(ctx, s)
		r.add(s, recipe, err)
		if err == nil && recipe != "" {
			folder := filepath.Dir(s.path)
			if recipes[folder] == nil {
				recipes[folder] = map[string][]string{}
			}
			recipes[folder][recipe] = append(recipes[folder][recipe], s.path)
		}
		if progress != nil {
			progress(i+1, len(slots))
		}
	}
	for _, entries := range recipes {
		r.Findings = append(r.Findings, minorities(entries)...)
	}
	orphans, err := c.Orphans(samples)
	if err != nil {
		return nil, err
	}
	for _, path := range orphans {
		r.Findings = append(r.Findings, Finding{path, fmt.Errorf("cache: %s: %w", path, ErrOrphan)})
	}
	slices.SortFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Entry, b.Entry) })
	return r, nil
}

// add counts the result of checking an entry.
func (r *Report) add(s slot, recipe string, err error) {
	switch {
	case errors.Is(err, ErrMissing):
		r.Missing++
		return
	case err != nil:
		r.Findings = append(r.Findings, Finding{s.file(), err})
		return
	case recipe == "":
		r.Unkeyed++
	}
	switch s.kind {
	case imageKind:
		r.Images++
	case controlKind:
		r.Controls++
	default:
		r.Text++
	}
}

// expected returns the entries that the samples have or need. Entries of the empty prompt are included only if they
// exist.
func (c *Cache) expected(samples []Sample) []slot {
	var slots []slot
	seen := map[string]bool{}
	add := func(s slot) {
		if !seen[s.path] {
			slots = append(slots, s)
		}
		seen[s.path] = true
	}
	if empty := c.emptySlot(); present(empty.path) {
		add(empty)
	}
	for _, s := range samples {
		if s.Caption != "" {
			add(c.seen(c.textSlot(s.Caption), s))
			if empty := c.emptyWithSlot(s.Caption, ""); present(empty.path) {
				add(c.seen(empty, s))
			}
		}
		if s.Image != "" {
			add(c.imageSlot(s.Image))
		}
		if s.Control != "" {
			add(c.controlSlot(s.Control))
		}
	}
	return slots
}

// seen returns s as a slot of text encoded with an image, if the existing entry is one.
func (c *Cache) seen(s slot, of Sample) slot {
	made, ok := recorded(s.path)
	if !ok || made.Kind != textImageKind {
		return s
	}
	s.kind, s.image = textImageKind, of.shown()
	return s
}

// recorded returns the recipe in the metadata of an entry.
func recorded(path string) (record, bool) {
	f, _, err := torchfile.OpenAny(path)
	if err != nil {
		return record{}, false
	}
	defer f.Close()
	var made record
	err = json.Unmarshal([]byte(f.Metadata()[recipeKey]), &made)
	return made, err == nil
}

func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// checkEntry checks an entry. An entry without a key is valid, with an empty recipe, if it is not older than its
// source.
func (c *Cache) checkEntry(ctx context.Context, s slot) (recipe string, err error) {
	found, err := c.look(ctx, s, look{values: true, accept: true})
	if err != nil {
		return "", err
	}
	if found.recipe == "" {
		return "", s.checkAge()
	}
	return found.recipe, nil
}

// checkAge compares modification times, the only check for an entry without a key.
func (s slot) checkAge() error {
	if s.owner == "" {
		return nil
	}
	source, err := os.Stat(s.owner)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	entry, err := os.Stat(s.file())
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if source.ModTime().Sub(entry.ModTime()) > 2*time.Second {
		return fmt.Errorf("cache: %s: its source is newer, and it has no key to tell more: %w", s.file(), ErrStale)
	}
	return nil
}

// minorities returns the entries whose recipe differs from the most common one of their folder.
func minorities(entries map[string][]string) []Finding {
	recipes := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(entries[b]), len(entries[a])), cmp.Compare(a, b))
	})
	var findings []Finding
	for _, r := range recipes[1:] {
		for _, path := range entries[r] {
			findings = append(findings, Finding{path, fmt.Errorf("cache: %s: made with %s, most others with %s: %w", path, r, recipes[0], ErrStale)})
		}
	}
	return findings
}

// Orphans returns the paths of entries, in either format, that belong to no sample. Other files are ignored.
func (c *Cache) Orphans(samples []Sample) ([]string, error) {
	keep := map[string]bool{c.emptySlot().path: true}
	for _, s := range samples { // an absent part maps to a name that no entry has
		for _, slot := range []slot{c.textSlot(s.Caption), c.emptyWithSlot(s.Caption, ""), c.imageSlot(s.Image), c.controlSlot(s.Control)} {
			keep[slot.path] = true
		}
	}
	var orphans []string
	for _, folder := range []string{textDir, imageDir, controlDir} {
		entries, err := os.ReadDir(filepath.Join(c.dir, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cache: %w", err)
		}
		for _, e := range entries {
			name, ok := entryName(e.Name())
			if ok && !e.IsDir() && !keep[c.place(folder, name)] {
				orphans = append(orphans, filepath.Join(c.dir, folder, e.Name()))
			}
		}
	}
	return orphans, nil
}

// entryName returns the name of the source of an entry file.
func entryName(file string) (string, bool) {
	for _, extension := range []string{".safetensors", ".pt"} {
		if name, ok := strings.CutSuffix(file, extension); ok && name != "" {
			return name, true
		}
	}
	return "", false
}

// Prune removes the files that Orphans returns, and returns them.
func (c *Cache) Prune(samples []Sample) ([]string, error) {
	orphans, err := c.Orphans(samples)
	if err != nil {
		return nil, err
	}
	for i, path := range orphans {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return orphans[:i], fmt.Errorf("cache: %w", err)
		}
	}
	keep := map[string]bool{}
	for _, s := range samples {
		for _, path := range []string{s.Image, s.Caption, s.Control} {
			keep[absolute(path)] = true
		}
	}
	return orphans, c.sources.forget(keep)
}

// Foreign returns an entry of the samples that was built with another model than the recipes of Open name, and that
// model. It returns empty strings if there is none.
func (c *Cache) Foreign(samples []Sample) (entry, made string) {
	for _, s := range c.expected(samples) {
		r, ok := recorded(s.path)
		if ok && s.recipe.Model != "" && r.Model != "" && r.Model != s.recipe.Model {
			return s.path, r.Model
		}
	}
	return "", ""
}
