//go:build cuda && linux

package generate_test

import _ "github.com/lorafuse/lorafuse/backend/cuda" // for the tests of machines
