! Arguments of calls, as a sequence of addresses. For the other modules: take, as_c, destruct.
module grpc_stacks
    use, intrinsic :: iso_c_binding
    use grpc_c
    use grpc_texts
    use grpc_errors, only: refuse
    implicit none
    private
    public :: take, as_c, destruct

    ! An argument: an address, or a copy of a value.
    type :: argument
        type(c_ptr) :: address = c_null_ptr
        logical :: is_contiguous = .true.
        integer(c_int8_t), allocatable :: bytes(:)
    end type

    ! Arguments that are pushed one by one. Copies of a stack are separate stacks.
    type, public :: grpc_arg_stack_t
        private
        type(argument), allocatable :: arguments(:)
        integer :: used = 0
    contains
        procedure, private :: push_int8, push_int16, push_int32, push_int64, push_float, push_double, push_complex
        procedure, private :: push_double_complex, push_bool, push_letters, push_pointer
        procedure, private :: value_int8, value_int16, value_int32, value_int64, value_float, value_double
        procedure, private :: value_complex, value_double_complex, value_bool, value_text
        ! Pushes a variable, scalar or array; or a pointer unchanged, where c_null_ptr is a result that is not wanted.
        generic :: push => push_int8, push_int16, push_int32, push_int64, push_float, push_double, push_complex, &
            push_double_complex, push_bool, push_letters, push_pointer
        ! Pushes a copy of a scalar or a string, for an input.
        generic :: push_value => value_int8, value_int16, value_int32, value_int64, value_float, value_double, &
            value_complex, value_double_complex, value_bool, value_text
        ! Removes the last argument; has no effect on an empty stack.
        procedure :: pop => stack_pop
        procedure :: clear => stack_clear
        procedure :: count => stack_count
    end type

contains

    ! ---- Argument stacks

    subroutine push_int8(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int8_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_int16(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int16_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_int32(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int32_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_int64(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int64_t), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_float(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_float), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_double(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_double), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_float_complex), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_double_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_double_complex), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_bool(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        logical(c_bool), intent(inout), target, asynchronous :: x(..)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_letters(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        character(kind=c_char, len=1), intent(inout), target, asynchronous :: x(:)
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    subroutine push_pointer(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        type(c_ptr), intent(in) :: x
        call add(stack, x, .true.)
    end subroutine

    subroutine value_int8(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int8_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_int16(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int16_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_int32(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int32_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_int64(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        integer(c_int64_t), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_float(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_float), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_double(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        real(c_double), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_float_complex), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_double_complex(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        complex(c_double_complex), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_bool(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        logical(c_bool), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(x, [0_c_int8_t]))
    end subroutine

    subroutine value_text(stack, x)
        class(grpc_arg_stack_t), intent(inout) :: stack
        character(len=*), intent(in) :: x
        call add(stack, c_null_ptr, .true., transfer(c_text(x), [0_c_int8_t]))
    end subroutine

    subroutine stack_pop(stack)
        class(grpc_arg_stack_t), intent(inout) :: stack
        stack%used = max(0, stack%used - 1)
    end subroutine

    subroutine stack_clear(stack)
        class(grpc_arg_stack_t), intent(inout) :: stack
        stack%used = 0
    end subroutine

    integer function stack_count(stack)
        class(grpc_arg_stack_t), intent(in) :: stack
        stack_count = stack%used
    end function

    ! An address, or a copy of the data at a place.
    subroutine add(stack, address, is_whole, bytes)
        class(grpc_arg_stack_t), intent(inout) :: stack
        type(c_ptr), intent(in) :: address
        logical, intent(in) :: is_whole
        integer(c_int8_t), intent(in), optional :: bytes(:)
        type(argument), allocatable :: more(:)
        if (.not. allocated(stack%arguments)) allocate(stack%arguments(8))
        if (stack%used == size(stack%arguments)) then
            allocate(more(2 * stack%used))
            more(:stack%used) = stack%arguments
            call move_alloc(more, stack%arguments)
        end if
        stack%used = stack%used + 1
        stack%arguments(stack%used) = argument(address, is_whole)
        if (present(bytes)) stack%arguments(stack%used)%bytes = bytes
    end subroutine

    ! Takes the argument at that place of a call, if it is present. Missing arguments before it remain detectable.
    subroutine take(stack, place, x)
        type(grpc_arg_stack_t), intent(inout) :: stack
        integer, intent(in) :: place
        type(*), dimension(..), optional, target, asynchronous :: x
        if (.not. present(x)) return
        do while (stack%used + 1 < place)
            call add(stack, c_null_ptr, .false.)
        end do
        call add(stack, c_loc(x), is_contiguous(x))
    end subroutine

    ! Returns a C stack; null if an argument cannot be passed, and then the last error has the reason.
    type(c_ptr) function as_c(stack)
        type(grpc_arg_stack_t), intent(in), target :: stack
        integer :: i
        type(c_ptr) :: address
        as_c = c_null_ptr
        do i = 1, stack%used
            if (stack%arguments(i)%is_contiguous) cycle
            if (c_associated(stack%arguments(i)%address)) then
                call refuse_argument(i, "is not contiguous: assign it to an array of its own")
            else
                call refuse_argument(i, "is left out, or not allocated")
            end if
            return
        end do
        as_c = c_arg_stack_new(max(1_c_int, int(stack%used, c_int)))
        if (.not. c_associated(as_c)) return
        do i = 1, stack%used
            address = stack%arguments(i)%address
            if (allocated(stack%arguments(i)%bytes)) address = c_loc(stack%arguments(i)%bytes)
            if (c_arg_stack_push_arg(as_c, address) == 0) cycle
            ! Otherwise the following argument would take its place.
            call destruct(as_c)
            as_c = c_null_ptr
            return
        end do
    end function

    ! Ends a C stack, if there is one.
    subroutine destruct(passed)
        type(c_ptr), intent(in) :: passed
        if (.not. c_associated(passed)) return
        if (c_arg_stack_destruct(passed) /= 0) error stop "grpc: a stack that was made is none"
    end subroutine

    subroutine refuse_argument(place, why)
        integer, intent(in) :: place
        character(len=*), intent(in) :: why
        character(len=12) :: number
        write (number, '(i0)') place
        call refuse("argument " // trim(number) // " " // why)
    end subroutine

end module grpc_stacks
