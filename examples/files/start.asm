; Prints a line and leaves (Linux, x86-64)
        global  _start

        section .data
text:   db      "hello", 10
length: equ     $ - text

        section .text
_start:
        mov     rax, 1          ; write
        mov     rdi, 1
        mov     rsi, text
        mov     rdx, length
        syscall
        cmp     rax, length
        jne     .failed
        xor     rdi, rdi
        jmp     .leave
.failed:
        mov     rdi, 1
.leave:
        mov     rax, 60         ; exit
        syscall
