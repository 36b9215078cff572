! Data that stay where they are made: grpc_remote.h for Fortran.
!
!   type(grpc_remote_t) :: a
!   error = grpc_remote_new_np(a, "A")
!   error = grpc_call(first, n, x, a%value)      the result stays where it is made ...
!   error = grpc_call(second, n, a%value, y)     ... and is sent from there to where the second runs
!   error = grpc_remote_free_np(a)
!
! `a%value` is passed as the argument in calls and on argument stacks: it has no memory, and can only be passed on.
module grpc_remotes
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private

    ! A handle. Copies are the same handle; one that was freed has no value.
    type, public :: grpc_remote_t
        integer(c_int8_t), pointer :: value => null()
    end type

    public :: grpc_remote_new_np, grpc_remote_find_np, grpc_remote_put_np, grpc_remote_get_np, grpc_remote_size_np
    public :: grpc_remote_wait_np, grpc_remote_share_np, grpc_remote_find_shared_np, grpc_remote_free_np

    interface
        integer(c_int) function c_new(remote, name) bind(c, name="grpc_remote_new_np")
            import
            type(c_ptr), intent(inout) :: remote
            type(c_ptr), value :: name
        end function
        integer(c_int) function c_find(remote, name) bind(c, name="grpc_remote_find_np")
            import
            type(c_ptr), intent(inout) :: remote
            character(kind=c_char), intent(in) :: name(*)
        end function
        integer(c_int) function c_put(remote, data, size_bytes) bind(c, name="grpc_remote_put_np")
            import
            type(c_ptr), value :: remote, data
            integer(c_size_t), value :: size_bytes
        end function
        integer(c_int) function c_get(remote, data, size_bytes) bind(c, name="grpc_remote_get_np")
            import
            type(c_ptr), value :: remote, data
            integer(c_size_t), value :: size_bytes
        end function
        integer(c_int) function c_size(remote, size_bytes) bind(c, name="grpc_remote_size_np")
            import
            type(c_ptr), value :: remote
            integer(c_size_t), intent(inout) :: size_bytes
        end function
        integer(c_int) function c_wait(remote) bind(c, name="grpc_remote_wait_np")
            import
            type(c_ptr), value :: remote
        end function
        integer(c_int) function c_share(remote, name, flags) bind(c, name="grpc_remote_share_np")
            import
            type(c_ptr), value :: remote
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: flags
        end function
        integer(c_int) function c_find_shared(remote, name, seconds) bind(c, name="grpc_remote_find_shared_np")
            import
            type(c_ptr), value :: remote
            character(kind=c_char), intent(in) :: name(*)
            real(c_double), value :: seconds
        end function
        integer(c_int) function c_free(remote) bind(c, name="grpc_remote_free_np")
            import
            type(c_ptr), value :: remote
        end function
    end interface

contains

    integer(c_int) function grpc_remote_new_np(remote, name)
        type(grpc_remote_t), intent(inout) :: remote
        character(len=*), intent(in), optional :: name
        character(kind=c_char, len=:), allocatable, target :: text
        type(c_ptr) :: made
        made = c_null_ptr
        if (present(name)) then
            text = c_text(name)
            grpc_remote_new_np = c_new(made, c_loc(text))
        else
            grpc_remote_new_np = c_new(made, c_null_ptr)
        end if
        if (c_associated(made)) call c_f_pointer(made, remote%value)
    end function

    integer(c_int) function grpc_remote_find_np(remote, name)
        type(grpc_remote_t), intent(inout) :: remote
        character(len=*), intent(in) :: name
        type(c_ptr) :: found
        found = c_null_ptr
        grpc_remote_find_np = c_find(found, c_text(name))
        if (c_associated(found)) call c_f_pointer(found, remote%value)
    end function

    ! Sets its value: this many bytes of a contiguous array, such as c_sizeof(data), which are copied.
    integer(c_int) function grpc_remote_put_np(remote, data, size_bytes)
        type(grpc_remote_t), intent(in) :: remote
        type(*), dimension(..), intent(in), target :: data
        integer(c_size_t), intent(in) :: size_bytes
        grpc_remote_put_np = c_put(pointer_of(remote), c_loc(data), size_bytes)
    end function

    ! Waits for its value and writes it to a contiguous array of this many bytes.
    integer(c_int) function grpc_remote_get_np(remote, data, size_bytes)
        type(grpc_remote_t), intent(in) :: remote
        type(*), dimension(..), target :: data
        integer(c_size_t), intent(in) :: size_bytes
        grpc_remote_get_np = c_get(pointer_of(remote), c_loc(data), size_bytes)
    end function

    integer(c_int) function grpc_remote_size_np(remote, size_bytes)
        type(grpc_remote_t), intent(in) :: remote
        integer(c_size_t), intent(out) :: size_bytes
        size_bytes = 0
        grpc_remote_size_np = c_size(pointer_of(remote), size_bytes)
    end function

    integer(c_int) function grpc_remote_wait_np(remote)
        type(grpc_remote_t), intent(in) :: remote
        grpc_remote_wait_np = c_wait(pointer_of(remote))
    end function

    ! Puts its value under a name that all programs of the grid find. If replaces is present and true, an existing
    ! name gets a new version; if durable is, its server has it again after a restart (gridloom serve --durable).
    integer(c_int) function grpc_remote_share_np(remote, name, replaces, durable)
        type(grpc_remote_t), intent(in) :: remote
        character(len=*), intent(in) :: name
        logical, intent(in), optional :: replaces, durable
        integer(c_int) :: flags
        flags = 0
        if (present(replaces)) flags = flags + merge(1_c_int, 0_c_int, replaces)
        if (present(durable)) flags = flags + merge(2_c_int, 0_c_int, durable)
        grpc_remote_share_np = c_share(pointer_of(remote), c_text(name), flags)
    end function

    ! Makes its value the current version of that name. Waits this many seconds until it has been put: for ever if
    ! they are below 0.
    integer(c_int) function grpc_remote_find_shared_np(remote, name, seconds)
        type(grpc_remote_t), intent(in) :: remote
        character(len=*), intent(in) :: name
        real(c_double), intent(in) :: seconds
        grpc_remote_find_shared_np = c_find_shared(pointer_of(remote), c_text(name), seconds)
    end function

    integer(c_int) function grpc_remote_free_np(remote)
        type(grpc_remote_t), intent(inout) :: remote
        grpc_remote_free_np = c_free(pointer_of(remote))
        nullify(remote%value)
    end function

    type(c_ptr) function pointer_of(remote)
        type(grpc_remote_t), intent(in) :: remote
        pointer_of = c_null_ptr
        if (associated(remote%value)) pointer_of = c_loc(remote%value)
    end function

end module grpc_remotes
