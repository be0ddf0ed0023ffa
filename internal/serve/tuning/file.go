package tuning

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Purpose is the purpose of a file.
type Purpose string

// Purposes of files. Jobs write results; clients upload the others.
const (
	FineTune Purpose = "fine-tune"
	UserData Purpose = "user_data"
	Results  Purpose = "fine-tune-results"
)

// others are OpenAI purposes that are not supported here.
var others = []string{"assistants", "batch", "vision", "evals", "assistants_output", "batch_output", string(Results)}

// ParsePurpose parses the purpose of an uploaded file.
func ParsePurpose(text string) (Purpose, error) {
	switch p := Purpose(text); {
	case p == FineTune, p == UserData:
		return p, nil
	case slices.Contains(others, text):
		return "", invalid("purpose", "%s is not supported, expected %s or %s", text, FineTune, UserData)
	}
	return "", invalid("purpose", "%s", suggest.Expected(text, []string{string(FineTune), string(UserData)}))
}

// File is the record of a file.
type File struct {
	ID      string  `json:"id"`
	Order   uint64  `json:"order"` // of creation
	Name    string  `json:"name"`
	Purpose Purpose `json:"purpose"`
	Bytes   int64   `json:"bytes"`
	Created int64   `json:"created"`
	Expires int64   `json:"expires,omitempty"` // 0: never
	Owner   string  `json:"owner,omitempty"`   // name of the key that created it
}

// Key implements store.Record.
func (f File) Key() string { return f.ID }

// OwnedBy implements store.Record.
func (f File) OwnedBy() string { return f.Owner }

const filePrefix = "file-"

// Upload is a file during its upload. It becomes visible with Commit.
type Upload struct {
	service *Service
	id      string
	file    *fsatomic.File
	bytes   int64
	counted int64 // bytes reserved in the storage
}

// Upload starts an upload.
func (s *Service) Upload() (*Upload, error) {
	s.expire() // may free space
	id := newID(filePrefix)
	f, err := fsatomic.Create(s.path(filesDir, id))
	if err != nil {
		return nil, written(err)
	}
	return &Upload{service: s, id: id, file: f}, nil
}

// Write implements io.Writer. It fails with ErrTooLarge and ErrNoSpace.
func (u *Upload) Write(p []byte) (int, error) {
	if most := u.service.options.MaxFile; u.bytes+int64(len(p)) > most {
		return 0, &Error{Kind: ErrTooLarge, Param: "file", Code: "file_too_large", Message: fmt.Sprintf("file: has more than %d bytes", most)}
	}
	if err := u.service.reserve(int64(len(p))); err != nil {
		return 0, err
	}
	u.counted += int64(len(p))
	n, err := u.file.Write(p)
	u.bytes += int64(n)
	return n, written(err)
}

// Commit writes the file to disk and stores its record, completed with the ID, size and time.
func (u *Upload) Commit(f File) (File, error) {
	f.ID, f.Bytes, f.Created = u.id, u.bytes, time.Now().Unix()
	if u.bytes == 0 {
		u.Abort()
		return File{}, invalid("file", "is empty")
	}
	if f.Expires > 0 {
		f.Expires += f.Created
	}
	if err := u.file.Commit(); err != nil {
		return File{}, written(err)
	}
	s := u.service
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.update(func(t *store.Tx) (err error) { return s.putFile(t, &f) })
	if err != nil {
		return File{}, errors.Join(err, os.Remove(u.file.Name()))
	}
	s.space.Add(f.ID, f.Bytes, u.counted)
	u.counted = 0
	return f, nil
}

func (s *Service) putFile(t *store.Tx, f *File) (err error) {
	if f.Order, err = t.Order(); err != nil {
		return err
	}
	return s.files.Put(t, *f)
}

// Abort removes an incomplete file. After a successful Commit it does nothing; it must be called
// after a failed one.
func (u *Upload) Abort() {
	u.file.Abort()
	u.service.space.Return(u.counted)
	u.counted = 0
}

// expire removes expired files.
func (s *Service) expire() {
	now := time.Now().Unix()
	for _, f := range s.files.All() {
		if f.Expires == 0 || f.Expires > now {
			continue
		}
		if err := s.remove(f.ID); err != nil {
			s.options.Logger.Warn("a file that has expired is still there", "file", f.ID, "error", err)
		}
	}
}

// Files returns the files that a client sees, latest first.
func (s *Service) Files(who keys.Client) []File {
	s.expire()
	return s.files.List(who, func(x, y File) int { return cmp.Compare(y.Order, x.Order) })
}

// File returns a file that a client sees. It fails with ErrNotFound.
func (s *Service) File(who keys.Client, id string) (File, error) {
	s.expire()
	f, ok := s.files.Find(who, id)
	if !ok {
		return File{}, &Error{Kind: ErrNotFound, Param: "id", Message: fmt.Sprintf("No such File object: %.200s", id)}
	}
	return f, nil
}

// Content opens a file that a client sees. It fails with ErrNotFound.
func (s *Service) Content(who keys.Client, id string) (File, io.ReadCloser, error) {
	f, err := s.File(who, id)
	if err != nil {
		return f, nil, err
	}
	r, err := os.Open(s.path(filesDir, f.ID))
	if errors.Is(err, fs.ErrNotExist) { // removed a moment ago
		_, gone := s.File(who, id)
		return f, nil, cmp.Or(gone, err)
	}
	return f, r, err
}

// DeleteFile removes a file that a client sees. Existing jobs keep their own link to it. It fails
// with ErrNotFound.
func (s *Service) DeleteFile(who keys.Client, id string) error {
	if _, err := s.File(who, id); err != nil {
		return err
	}
	return s.remove(id)
}

// remove removes an existing file.
func (s *Service) remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.update(func(t *store.Tx) error { return s.files.Remove(t, id) }); err != nil {
		return err
	}
	s.uncount(id)
	if err := os.Remove(s.path(filesDir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.options.Logger.Warn("the bytes of a file that was removed are still there", "file", id, "error", err)
	}
	return nil
}
