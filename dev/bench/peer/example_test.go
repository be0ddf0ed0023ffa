package peer_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/dev/bench/peer"
)

// A peer is started when it is first asked; what keeps it from that is an error
// of the one who asks.
func Example() {
	p := peer.Torch("no-such-folder/bin/python", 2)
	defer p.Close()
	_, err := p.Begin(context.Background(), map[string]any{"op": "matmul", "m": 1, "k": 16, "n": 4})
	fmt.Println(errors.Is(err, os.ErrNotExist))
	// Output: true
}
