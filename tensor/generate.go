package tensor

//go:generate go run -C ../tools ./asm/convert -out ../tensor/convert_amd64.s -stubs ../tensor/stubs_amd64.go -pkg tensor
