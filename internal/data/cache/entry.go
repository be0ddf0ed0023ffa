package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
)

// get reads an entry, or builds and writes it. With trust, the source of an entry that was found fresh before is not
// checked again.
func (c *Cache) get(ctx context.Context, s slot, build builder, trust bool) (tensors, error) {
	leave, err := c.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := c.look(ctx, s, look{values: true, trust: trust})
	if err == nil {
		return found.tensors, nil
	}
	if !c.rebuilds(err, build) {
		return nil, err
	}
	return c.build(ctx, s, build)
}

// ensure builds an entry if necessary, and reports whether it did.
func (c *Cache) ensure(ctx context.Context, s slot, build builder, values bool) (built bool, err error) {
	leave, err := c.enter(ctx, s)
	if err != nil {
		return false, err
	}
	defer leave()
	_, err = c.look(ctx, s, look{values: values})
	if err == nil || !c.rebuilds(err, build) {
		return false, err
	}
	_, err = c.build(ctx, s, build)
	return err == nil, err
}

// enter waits until no other goroutine uses the entry.
func (c *Cache) enter(ctx context.Context, s slot) (leave func(), err error) {
	owner := s.owner
	switch empty := s.path == c.emptySlot().path; {
	case owner == "" && !empty, s.kind != textKind && s.image == "":
		return nil, fmt.Errorf("cache: an entry without a source: %w", ErrOption)
	case owner != "" && empty:
		return nil, fmt.Errorf("cache: %s: found source %s, expected none: %w", s.path, owner, ErrName)
	}
	if owner != "" {
		owner = absolute(owner)
	}
	c.mu.Lock()
	busy := c.busy[s.path]
	if busy == nil {
		busy = make(chan struct{}, 1)
		c.busy[s.path], c.owners[s.path] = busy, owner
	}
	other := c.owners[s.path]
	c.mu.Unlock()
	if other != owner {
		return nil, fmt.Errorf("cache: %s: found sources %s and %s: %w", s.path, other, owner, ErrName)
	}
	select {
	case busy <- struct{}{}:
		return func() { <-busy }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// rebuilds reports whether an unusable entry may be rebuilt.
func (c *Cache) rebuilds(err error, build builder) bool {
	switch {
	case build == nil:
		return false
	case errors.Is(err, ErrMissing), errors.Is(err, ErrStale):
		return true
	case errors.Is(err, ErrCorrupt):
		return c.options.Corrupt == Rebuild
	case errors.Is(err, ErrUnkeyed):
		return c.options.Unkeyed == Rebuild
	}
	return false
}

// look selects how thoroughly an entry is checked.
type look struct {
	values bool // read the tensors
	trust  bool // skip the check of an entry found fresh before
	accept bool // accept an entry without a key
}

// found is a usable entry.
type found struct {
	tensors tensors // if requested
	shapes  shapes
	recipe  string // recipe in the metadata, empty for an entry without a key
	sum     string // checksum of the tensors, see checksum
}

// look reads and checks an entry. It fails with ErrMissing, ErrStale, ErrCorrupt and ErrUnkeyed, and with errors of the
// file system, which do not depend on the entry.
func (c *Cache) look(ctx context.Context, s slot, how look) (*found, error) {
	f, source, err := torchfile.OpenAny(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cache: %s: %w", s.path, ErrMissing)
	case err != nil:
		return nil, s.unreadable(err)
	}
	defer f.Close()
	in := s.within(f, source)
	header, err := in.shapes()
	if err != nil {
		return nil, s.unreadable(err)
	}
	metadata := f.Metadata()
	foreign := metadata[keyKey] == ""
	if foreign {
		header = foreignShapes(header)
	}
	if err := s.check(header); err != nil {
		return nil, s.corrupt(err)
	}
	if err := c.compare(ctx, s, metadata, how); err != nil {
		return nil, err
	}
	entry := &found{shapes: header, recipe: metadata[recipeKey], sum: metadata[sumKey]}
	if !how.values {
		return entry, nil
	}
	if entry.tensors, err = in.read(); err != nil {
		return nil, s.unreadable(err)
	}
	if foreign {
		entry.tensors = foreignTensors(entry.tensors)
	} else if sum := metadata[sumKey]; sum != checksum(entry.tensors) {
		return nil, s.corrupt(fmt.Errorf("found bytes with the checksum %s, expected %q", checksum(entry.tensors), sum))
	}
	if err := s.checkValues(entry.tensors); err != nil {
		return nil, s.corrupt(err)
	}
	return entry, nil
}

// compare checks the key of an entry.
func (c *Cache) compare(ctx context.Context, s slot, metadata map[string]string, how look) error {
	key := metadata[keyKey]
	if key == "" {
		if how.accept || c.options.Unkeyed == Accept {
			return nil
		}
		return fmt.Errorf("cache: %s: %w", s.file(), ErrUnkeyed)
	}
	if how.trust && c.checked(s) == key {
		return nil
	}
	var made record
	if err := json.Unmarshal([]byte(metadata[recipeKey]), &made); err != nil {
		return s.corrupt(fmt.Errorf("metadata %s: %w", recipeKey, err))
	}
	want := record{s.kind, s.recipe}
	if s.recipe.Model == "" { // any recipe
		want.Recipe = made.Recipe
	}
	if made.json() != want.json() {
		return fmt.Errorf("cache: %s: made with %s, expected %s: %w", s.path, made.json(), want.json(), ErrStale)
	}
	if c.options.WithoutSources {
		return nil
	}
	digests, err := s.digests(ctx, c.sources)
	if err != nil {
		return err
	}
	if makeKey(want.json(), digests) != key {
		return fmt.Errorf("cache: %s: its source has changed: %w", s.path, ErrStale)
	}
	c.check(s, key)
	return nil
}

// checked returns the key of an entry when it was last found fresh, or "".
func (c *Cache) checked(s slot) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fresh[s.path]
}

func (c *Cache) check(s slot, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh[s.path] = key
}

// build builds and writes an entry.
func (c *Cache) build(ctx context.Context, s slot, build builder) (tensors, error) {
	if s.recipe.Model == "" {
		return nil, fmt.Errorf("cache: build %s: no model is given in the recipe: %w", s.path, ErrOption)
	}
	caption, image, digests, err := s.contents(ctx, c.sources)
	if err != nil {
		return nil, err
	}
	t, err := build(caption, image)
	if err != nil {
		return nil, err
	}
	recipe := record{s.kind, s.recipe}.json()
	key := makeKey(recipe, digests)
	if err := os.MkdirAll(filepath.Dir(s.path), 0o777); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	err = save(s.path, t, map[string]string{typeKey: typeValue, keyKey: key, recipeKey: recipe, sumKey: checksum(t)})
	if err != nil {
		return nil, err
	}
	c.check(s, key)
	return t, nil
}

func (s slot) corrupt(err error) error {
	return fmt.Errorf("cache: %s: %w: %w", s.file(), ErrCorrupt, err)
}

// unreadable distinguishes a damaged entry from one that cannot be read, which is no reason to rebuild it.
func (s slot) unreadable(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) || errors.Is(err, safetensors.ErrNotRegular) || errors.Is(err, safetensors.ErrFault) {
		return fmt.Errorf("cache: %w", err)
	}
	return s.corrupt(err)
}
