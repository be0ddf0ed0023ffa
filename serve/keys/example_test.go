package keys_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/serve/keys"
)

func Example() {
	users := keys.NewSet([]string{"sesame"})
	fmt.Println(users.Has("sesame"), users.Has("open"), keys.Name("sesame"))
	// Output: true false key-d0c04f4b
}
