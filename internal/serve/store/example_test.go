package store_test

import (
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// note is a record.
type note struct {
	ID, Owner, Text string
}

func (n note) Key() string     { return n.ID }
func (n note) OwnedBy() string { return n.Owner }

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	notes := store.NewTable[note]("notes")
	s, err := store.Open(dir, nil, notes)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	err = s.Update(func(t *store.Tx) error { return notes.Put(t, note{"n1", "ann", "buy milk"}) })
	if err != nil {
		panic(err)
	}
	for _, who := range []string{"ann", "bob"} {
		n, ok := notes.Find(keys.Client{Name: who}, "n1")
		fmt.Printf("%s %v %q\n", who, ok, n.Text)
	}
	// Output:
	// ann true "buy milk"
	// bob false ""
}
