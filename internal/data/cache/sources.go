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

// sourcesFile is the file, in the folder of the cache, with the digests of sources that need not be read again. It may
// be deleted at any time.
const sourcesFile = "lorafuse-sources.json"

// sources computes digests of files and reads each file as rarely as is safe.
//
// A file is not read again while its size, inode, modification time and change time are the same. The system sets the
// change time at every write, and it cannot be set back; but two writes within one clock tick leave it the same.
// Therefore a digest is kept only if the file had not changed for a while when it was read. On systems without a change
// time every file is read.
type sources struct {
	file string
	read func(path string) ([]byte, error) // os.ReadFile, or a counter in tests
	now  func() time.Time

	mu    sync.Mutex
	known map[string]known // by absolute path
	news  bool
}

type known struct {
	stamp
	SHA256 digest `json:"sha256"`
}

// stamp distinguishes versions of a file without reading them.
type stamp struct {
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // in nanoseconds
	Changed  int64  `json:"changed"`
	Inode    uint64 `json:"inode"`
}

// clockResolution is the time since its last change after which the digest of a file is kept. It is longer than the coarsest
// file system clock, the two seconds of FAT.
const clockResolution = 5 * time.Second

func newSources(dir string) *sources {
	s := &sources{file: filepath.Join(dir, sourcesFile), read: os.ReadFile, now: time.Now}
	s.known = s.load()
	return s
}

// load reads the digests of earlier runs, or none if the file is invalid.
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

// save adds new digests to the file. If the folder is read-only, the next run reads more files.
func (s *sources) save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.news {
		return nil
	}
	all := s.load() // another process may have saved in between
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

// forget removes all files that are not in keep.
func (s *sources) forget(keep map[string]bool) error {
	s.mu.Lock()
	maps.DeleteFunc(s.known, func(path string, _ known) bool { return !keep[path] })
	s.news = true
	err := os.Remove(s.file) // otherwise save would merge them again
	s.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cache: %w", err)
	}
	return s.save()
}

// digest returns the digest of the contents of a file.
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

// content reads a file and returns its contents and their digest.
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
		if ok && s.now().Sub(time.Unix(0, max(after.Modified, after.Changed))) > clockResolution {
			s.mu.Lock()
			s.known[absolute(path)], s.news = known{after, d}, true
			s.mu.Unlock()
		}
		return data, d, nil
	}
	return nil, "", fmt.Errorf("cache: %s: %w", path, ErrChanging)
}

// stamp returns the stamp of a file; ok is false if the system does not provide a change time.
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

// absolute returns the path under which a file is recorded.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path // the working directory is gone, so relative paths fail anyway
}
