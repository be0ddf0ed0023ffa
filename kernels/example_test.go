package kernels_test

import (
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/kernels"
)

// What a kernel is to be handed, as its source declares it.
func ExampleSignatures() {
	all, err := kernels.Signatures(os.DirFS("."))
	if err != nil {
		fmt.Println(err)
		return
	}
	k := all["iota_i32"]
	fmt.Println(k.File, k.Name, k.Threads, k.Params)
	// Output: elementwise iota_i32 256 [{pointer out} {long long n} {long long inner} {long long count}]
}
