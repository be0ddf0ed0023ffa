package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// sourcesFile remembers, in the folder of the cache, the digests of files that
// need not be read again. It can be removed at any time.
const sourcesFile = "lorafuse-sources.json"

// sources gives the digests of files, reading each as seldom as is safe.
//
// A file is not read again while its size, its number and its times of
// modification and of change are those of the last reading. The time of change
// is set by the system at every write and cannot be set back; but a write
// within the same tick of the clock leaves it as it is. So only a file that had
// been left alone for a while when it was read is remembered, and where the
// system has no time of change every file is read.
type sources struct {
	file string
	read func(path string) ([]byte, error) // os.ReadFile; tests count
	now  func() time.Time

	mu    sync.Mutex
	known map[string]known // by absolute path
	news  bool
}

type known struct {
	stamp
	SHA256 digest `json:"sha256"`
}

// stamp is what tells two versions of a file apart without reading them.
type stamp struct {
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // in nanoseconds
	Changed  int64  `json:"changed"`
	Inode    uint64 `json:"inode"`
}

// settled is for how long a file must have been left alone: longer than the
// coarsest clock of a file system, the two seconds of FAT.
const settled = 5 * time.Second

func newSources(dir string) *sources {
	s := &sources{file: filepath.Join(dir, sourcesFile), read: os.ReadFile, now: time.Now}
	s.known = s.load()
	return s
}

// load reads what earlier runs remember; nothing where it makes no sense.
func (s *sources) load() map[string]known {
	var all map[string]known
	raw, err := os.ReadFile(s.file)
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil || all == nil {
		return map[string]known{}
	}
	return all
}

// save adds what is new to the file. Where the folder may not be written to,
// the next run reads more.
func (s *sources) save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.news {
		return nil
	}
	all := s.load() // another process may have saved
	maps.Copy(all, s.known)
	raw, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	err = fsatomic.WriteFile(s.file, append(raw, '\n'))
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("cache: %w", err)
	}
	s.news = false
	return nil
}

// forget drops the files that keep does not name.
func (s *sources) forget(keep map[string]bool) error {
	s.mu.Lock()
	maps.DeleteFunc(s.known, func(path string, _ known) bool { return !keep[path] })
	s.news = true
	err := os.Remove(s.file) // or save would bring them back
	s.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cache: %w", err)
	}
	return s.save()
}

// digest is the digest of a file's content.
func (s *sources) digest(ctx context.Context, path string) (digest, error) {
	now, ok, err := s.stamp(path)
	if err != nil {
		return "", err
	}
	if ok {
		s.mu.Lock()
		k, found := s.known[absolute(path)]
		s.mu.Unlock()
		if found && k.stamp == now {
			return k.SHA256, nil
		}
	}
	_, d, err := s.content(ctx, path)
	return d, err
}

// content reads a file and gives its digest, too.
func (s *sources) content(ctx context.Context, path string) ([]byte, digest, error) {
	for range 3 {
		if err := context.Cause(ctx); err != nil {
			return nil, "", err
		}
		before, ok, err := s.stamp(path)
		if err != nil {
			return nil, "", err
		}
		data, err := s.read(path)
		if err != nil {
			return nil, "", fmt.Errorf("cache: %w", err)
		}
		after, _, err := s.stamp(path)
		if err != nil {
			return nil, "", err
		}
		if before != after || int64(len(data)) != after.Size {
			continue
		}
		d := digestOf(data)
		if ok && s.now().Sub(time.Unix(0, max(after.Modified, after.Changed))) > settled {
			s.mu.Lock()
			s.known[absolute(path)], s.news = known{after, d}, true
			s.mu.Unlock()
		}
		return data, d, nil
	}
	return nil, "", fmt.Errorf("cache: %s: %w", path, ErrChanging)
}

// stamp is the state of a file; not ok where it does not say enough.
func (s *sources) stamp(path string) (stamp, bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, false, fmt.Errorf("cache: %w", err)
	}
	if !info.Mode().IsRegular() { // a pipe would block
		return stamp{}, false, fmt.Errorf("cache: %s: %w", path, fsatomic.ErrNotRegular)
	}
	changed, inode, ok := changeTime(info)
	return stamp{info.Size(), info.ModTime().UnixNano(), changed, inode}, ok, nil
}

// absolute is the path by which a file is remembered.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path // the working directory is gone: relative paths do not work anyway
}
