package keys_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
)

func Example() {
	users, err := keys.NewSet([]string{"sesame", "ann new", "ann old"})
	if err != nil {
		panic(err)
	}
	ring := keys.Ring{Users: users}
	for _, key := range []string{"sesame", "new", "old"} {
		client, ok := ring.Client(key)
		fmt.Println(client.Name, ok, client.Sees("ann"))
	}
	// Output:
	// key-d0c04f4b true false
	// ann true true
	// ann true true
}
